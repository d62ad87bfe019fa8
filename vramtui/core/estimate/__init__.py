"""What was predicted: ledgers, estimates, comparisons, cards."""
