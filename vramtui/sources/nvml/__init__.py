"""This machine's GPUs through NVML."""
