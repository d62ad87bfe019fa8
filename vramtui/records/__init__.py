"""What leaves the program and can come back: snapshots to take away, recordings to play again."""

from vramtui.records.saving import FORMATS, save_snapshot

__all__ = ["FORMATS", "save_snapshot"]
