"""Calls of modules without gradients that repeat: their allocations are recorded once and run again from the record."""
