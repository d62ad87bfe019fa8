"""What stands between the code and PyTorch's dispatcher during a trace."""
