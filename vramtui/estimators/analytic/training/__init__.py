"""A training job on one card, phase by phase."""
