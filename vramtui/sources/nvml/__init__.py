"""This machine's GPUs through NVML, asked by ctypes."""
