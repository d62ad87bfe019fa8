"""The Watch screen: GPUs, processes, the selected one's memory, and a preset's estimate."""
