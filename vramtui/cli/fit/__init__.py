"""`vramtui fit`."""
