"""What PyTorch and others were seen to take, and how far off estimates are: for tests and commands of `benchmarks`."""
