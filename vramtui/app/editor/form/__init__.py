"""The editor's form: one line for each field of a preset, stepped, chosen or typed into."""
