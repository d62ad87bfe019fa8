"""Shapes of every tensor of transformers' models, generated from transformers, and their reader."""
