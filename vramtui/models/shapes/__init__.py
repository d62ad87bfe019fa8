"""Shapes of every tensor of transformers' models, generated from transformers, and what reads models by them."""
