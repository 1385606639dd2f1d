"""Frozen values and protocols that every other room may import, and that import nothing but NumPy and errors."""
