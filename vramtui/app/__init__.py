"""The dashboard: polls a source on its own thread, keeps the history, draws. Loads Textual only when it is used."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vramtui.app.app import Dashboard
    from vramtui.app.shutdown import run_dashboard

__all__ = ["Dashboard", "run_dashboard"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - module attributes are of any type
    if name == "Dashboard":
        from vramtui.app.app import Dashboard  # loads Textual, 140 ms

        return Dashboard
    if name == "run_dashboard":
        from vramtui.app.shutdown import run_dashboard

        return run_dashboard
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
