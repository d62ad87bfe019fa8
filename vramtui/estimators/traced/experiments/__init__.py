"""The lab's experiments: ordinary PyTorch on "cuda", run on fake tensors here and on a card where there is one."""
