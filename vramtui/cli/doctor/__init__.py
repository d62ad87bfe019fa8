"""`vramtui doctor`: one file for each part of the machine, one function for each check."""
