"""The History screen: past runs, and how far the predictions were off."""
