"""The dashboard in a browser: one collector, and a view-only dashboard for each tab."""
