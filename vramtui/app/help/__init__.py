"""Help: every key by where it works, and problems with their next steps."""
