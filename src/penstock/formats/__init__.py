"""Bytes to records and back: what penstock itself writes and reads."""
