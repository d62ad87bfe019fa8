"""Dry runs: a job's own code on a simulated GPU or on fake tensors."""
