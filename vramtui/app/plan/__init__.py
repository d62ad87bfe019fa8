"""The Plan screen: maps of what fits a card, advice, and variants saved as presets."""
