"""What was seen: samples, processes over time, alerts, matching, snapshots."""
