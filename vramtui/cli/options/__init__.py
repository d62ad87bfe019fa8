"""Options of commands: one frozen value each, and the flags of a job that all of them take."""
