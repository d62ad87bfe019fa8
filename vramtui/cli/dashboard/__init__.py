"""`vramtui` without a command: what the dashboard is handed by the command line."""
