"""What a model consists of, read from whoever describes it: files, stores, names. Imports the core alone."""
