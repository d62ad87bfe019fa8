"""`vramtui history`."""
