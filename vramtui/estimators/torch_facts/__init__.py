"""Facts about PyTorch on a GPU, each once, with its source. Nothing here imports torch."""
