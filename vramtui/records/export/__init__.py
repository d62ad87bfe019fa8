"""Snapshots and past runs as files: JSON, CSV, Markdown, HTML."""
