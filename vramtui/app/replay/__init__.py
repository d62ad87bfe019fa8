"""Playing a recording in the dashboard."""
