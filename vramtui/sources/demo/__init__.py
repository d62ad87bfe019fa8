"""A believable host that is not there."""
