"""Where the engine's workers live: one file each, none knows another."""
