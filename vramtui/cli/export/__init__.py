"""`vramtui export`."""
