"""Whether the dashboard may send signals, and through whom."""

from typing import TYPE_CHECKING

from vramtui.cli.common.open_source import OpenedSource

if TYPE_CHECKING:
    from vramtui.app import Dashboard


def let_act(app: "Dashboard", opened: OpenedSource, *, read_only: bool, told: bool) -> None:
    """Give the dashboard its actor, or the sentence that says why it has none.

    Args:
        app: the dashboard.
        opened: what it shows.
        read_only: nothing is ever done to a process.
        told: that was said on the command line, not in the settings.
    """
    if opened.recording is not None:
        app.no_actor = "No signals in a replay: its pids may belong to other processes now."
    elif opened.banner:
        app.no_actor = "No signals from the demo: its processes are not real."
    elif read_only:
        where = "started with --read-only" if told else "dashboard.read_only is set in the settings"
        app.no_actor = f"Signals are off: {where}."
    else:
        from vramtui.sources.host.signals import Signals  # noqa: PLC0415 - not where nothing is sent

        app.actor = Signals()
