"""`vramtui trace`."""
