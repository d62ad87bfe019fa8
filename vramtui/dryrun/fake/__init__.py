"""The dry run on fake tensors: PyTorch code runs without a GPU, without values, with a simulated allocator."""
