"""A preset as a form: tables, fields, kinds, bounds and help."""
