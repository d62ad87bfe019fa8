"""Code of several commands."""
