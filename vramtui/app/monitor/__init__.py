"""What the dashboard does with each sample."""
