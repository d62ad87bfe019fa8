"""Sizes that follow from shapes and types only."""
