"""Samples that another program sends, as a recording that goes on."""
