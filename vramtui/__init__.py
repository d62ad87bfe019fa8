"""vramtui: GPU memory, observed and predicted, side by side. It offers what `vramtui.api` does, loaded when used."""

__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """A name of `vramtui.api`, which is loaded now: it takes a tenth of a second."""
    if name.startswith("_"):
        raise AttributeError(f"module 'vramtui' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - `--version` needs none

    api = import_module("vramtui.api")
    if name not in api.__all__:
        raise AttributeError(f"module 'vramtui' has no attribute {name!r}")
    return getattr(api, name)


def __dir__() -> list[str]:
    from importlib import import_module  # noqa: PLC0415 - `--version` needs none

    return ["__version__", *import_module("vramtui.api").__all__]
