"""The Timeline screen: the panel's preset phase by phase, and its trace."""
