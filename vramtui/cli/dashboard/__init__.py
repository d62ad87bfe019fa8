"""`vramtui` alone: what the dashboard is handed by the command line."""
