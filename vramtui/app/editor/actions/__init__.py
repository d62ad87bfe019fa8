"""What the editor asks and does: with the file, with new drafts, with choices and with measured figures."""
