"""`vramtui run` and `vramtui attach`."""
