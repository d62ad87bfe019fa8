"""`vramtui ps`: its options, what may be picked, its tables, and those of several hosts."""
