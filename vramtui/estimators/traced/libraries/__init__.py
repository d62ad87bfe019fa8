"""What stands in for parts of PyTorch that a trace cannot run as they are: workers, compilers, readers of values."""
