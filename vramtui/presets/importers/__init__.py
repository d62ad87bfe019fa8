"""Preset values from other places: command lines, and the YAML and JSON files of training programs."""
