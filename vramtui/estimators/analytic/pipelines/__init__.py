"""Diffusion pipelines: text encoders, a denoiser and a VAE that take turns on one card."""
