"""Slurm by its own commands, each with arguments and never through a shell."""
