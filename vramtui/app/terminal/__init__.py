"""How the program meets the terminal: few bytes, any character set, and the terminal restored at the end."""
