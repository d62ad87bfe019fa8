"""`vramtui dry-run`."""
