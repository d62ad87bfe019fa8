"""The command line: one file per command; the only place that builds sources and hands them to the app."""
