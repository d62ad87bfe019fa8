"""The Lab screen: small experiments on PyTorch's memory, step by step."""
