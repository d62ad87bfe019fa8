"""Diffusion pipelines, one part after another: text encoders, VAEs, and the index that names them."""
