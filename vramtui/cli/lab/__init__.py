"""`vramtui lab`."""
