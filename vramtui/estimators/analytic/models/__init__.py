"""Kinds of models as programs of operators."""
