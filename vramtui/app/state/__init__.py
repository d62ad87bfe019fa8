"""What was seen and what a person chose: the state of the dashboard, and the values that are drawn of it."""
