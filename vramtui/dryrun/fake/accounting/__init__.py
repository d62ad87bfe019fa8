"""Accounting of a dry run's bytes: storages, categories, phases, the peak."""
