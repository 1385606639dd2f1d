"""The builder: sources, and what to do with their elements."""
