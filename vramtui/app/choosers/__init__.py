"""Windows in which one thing is chosen from a list with a filter."""
