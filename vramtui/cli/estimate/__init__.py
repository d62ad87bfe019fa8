"""`vramtui estimate`."""
