"""`vramtui history` and `vramtui report`."""
