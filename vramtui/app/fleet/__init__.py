"""The Fleet screen: many hosts, a line for each of their GPUs."""
