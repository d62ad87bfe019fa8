"""What the Plan screen shows: axes, maps, advice, and how a variant becomes a preset. No widgets here."""
