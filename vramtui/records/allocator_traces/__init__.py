"""What an allocator was asked for, read from files of others: event traces and PyTorch's memory snapshots."""
