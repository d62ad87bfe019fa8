"""GPUs through the nvidia-smi program."""
