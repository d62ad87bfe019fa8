"""Other hosts, through the system's own OpenSSH client."""
