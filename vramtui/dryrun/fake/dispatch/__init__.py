"""Dispatch of a dry run's operators on fake tensors."""
