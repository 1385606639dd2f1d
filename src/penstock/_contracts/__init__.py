"""Frozen values and protocols that every room above may import."""
