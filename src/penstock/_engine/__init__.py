"""The engine: from a plan to a program, pure decisions about what runs next, and the one mutex around them."""
