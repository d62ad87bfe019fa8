"""What leaves the program and can come back: snapshots to take away, recordings to play again."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramtui.records.export.files import save_snapshot

__all__ = ["save_snapshot"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - module attributes are of any type
    if name in __all__:
        from vramtui.records.export import files as saving  # noqa: PLC0415 - who only wants the JSON document need not load it

        return getattr(saving, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
