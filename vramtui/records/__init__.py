"""Snapshots, recordings and the history of runs: files that this program writes and reads again."""
