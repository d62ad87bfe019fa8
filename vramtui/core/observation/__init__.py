"""Observations: samples, processes over time, alerts, matching, snapshots."""
