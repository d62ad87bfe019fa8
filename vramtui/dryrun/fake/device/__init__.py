"""The device that stands in for CUDA during a trace."""
