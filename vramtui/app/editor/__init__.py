"""The preset editor: a form and the TOML text of one draft, and what it would take, side by side."""
