"""A preset's text as TOML: one value changed and every other byte left."""
