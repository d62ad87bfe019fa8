"""A preset while it is edited: text, form, undo, and its file."""
