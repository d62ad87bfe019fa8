"""Out-of-memory messages: what each program writes, read back into figures and told apart by their cause."""
