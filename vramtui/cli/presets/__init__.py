"""`vramtui presets`."""
