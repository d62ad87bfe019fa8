"""What the dashboard does with each sample, beside showing it."""
