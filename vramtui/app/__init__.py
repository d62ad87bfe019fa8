"""The dashboard: polls a source on its own thread, keeps the history, draws."""
