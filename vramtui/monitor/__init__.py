"""The engine without a screen: what the dashboard, `record`, `run`, `ps` and `snapshot` all do with samples."""
