"""What fits a card, what each change would free, and the cheapest set of changes that is enough."""
