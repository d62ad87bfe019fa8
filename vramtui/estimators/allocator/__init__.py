"""PyTorch's CUDA caching allocator as a pure simulation: no torch, no device, the same figures after every event.

The rules are those of PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h.
"""
