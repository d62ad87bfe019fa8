"""`vramtui record`."""
