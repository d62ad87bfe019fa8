"""This machine's GPUs through NVML, asked with `pynvml`."""
