"""Kinds of modules as one writes them in torch.nn: a file each, named as in `models/kinds` and `analytic/ops`."""
