"""Predictions: ledgers, estimates, comparisons, cards."""
