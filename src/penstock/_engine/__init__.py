"""The engine: pure decisions (tune, segment), slots, and the one mutex around them."""
