"""What PyTorch does on a card, each fact once, with its source. Nothing here imports torch."""
