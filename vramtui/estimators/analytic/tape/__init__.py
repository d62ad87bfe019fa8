"""Tapes of operators, and replaying them forward and backward while counting bytes."""
