"""vramtui: GPU memory, observed and predicted, side by side."""

__version__ = "0.1.0"
