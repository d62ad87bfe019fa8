"""Snapshots from the dashboard: the key that writes one, and the window of formats and folder."""
