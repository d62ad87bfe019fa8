"""`vramtui articles`."""
