"""Operators on a tape: what each makes, saves for its backward pass, and frees."""
