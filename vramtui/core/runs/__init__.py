"""Past runs: what the history keeps, and what it teaches."""
