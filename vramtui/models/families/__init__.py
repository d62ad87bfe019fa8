"""Which tensors an architecture of transformers has and what its layers keep of a sequence, worked out from its config
only: one library of operators, and for each family the facts in which it differs from Llama.
"""
