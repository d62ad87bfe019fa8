"""The kinds of modules: one a file, named as its class's `kind`."""
