"""The History screen: past runs, how far predictions were off, and what the runs teach."""
