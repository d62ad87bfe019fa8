"""Return whether a job fits a GPU, the effect of each change, and the cheapest set of changes that is enough."""
