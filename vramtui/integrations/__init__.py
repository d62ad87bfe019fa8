"""vramtui in the places where people train: transformers, Lightning, accelerate and notebooks.

Each module imports its library, which has to be there already; nothing is installed for it.
"""
