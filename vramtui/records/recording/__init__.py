"""Recordings: what one holds, written and read line by line."""
