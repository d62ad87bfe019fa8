"""`vramtui run`."""
