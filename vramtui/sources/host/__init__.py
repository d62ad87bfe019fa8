"""The machine that this program runs on: its processes, pid namespaces, signals."""
