"""Signals sent to a process from the dashboard, and what came of them."""
