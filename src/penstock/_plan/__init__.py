"""The plan: frozen nodes that say what was asked for, their lengths, their checks and their words."""
