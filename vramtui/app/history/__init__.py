"""The History screen: past runs, and the errors of their predictions."""
