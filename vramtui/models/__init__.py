"""Models, read from files, stores or names. Imports only the core."""
