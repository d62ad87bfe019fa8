"""The child process of a trace: what is asked, what is answered, how it fails."""
