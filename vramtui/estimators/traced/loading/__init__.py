"""What the code loads on the host: batches and checkpoints."""
