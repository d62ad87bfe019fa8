"""Classic experiments on PyTorch's memory: predicted by the tracer, and measured where there is a card."""
