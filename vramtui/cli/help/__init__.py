"""`vramtui help`."""
