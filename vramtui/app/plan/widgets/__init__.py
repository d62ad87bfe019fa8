"""The Plan screen's panels."""
