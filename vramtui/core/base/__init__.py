"""Units, safe text, errors and colours."""
