"""What CUDA's kernels allocate beside their outputs, one small function per operator."""

from importlib import import_module

_MODULES = (
    "attention",
    "convolution",
    "copies",
    "indexing",
    "losses",
    "matmul",
    "norms",
    "recurrent",
    "reductions",
    "unshaped",
)


def load_all() -> None:
    """Register every rule."""
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
