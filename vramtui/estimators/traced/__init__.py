"""Runs ordinary PyTorch code on fake tensors and follows its memory through a simulated caching allocator."""
