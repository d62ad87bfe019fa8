"""Presets that nobody wrote: what running processes amount to."""
