"""Whether the dashboard may send signals, and through whom."""

from typing import TYPE_CHECKING

from vramtui.cli.common.open_source import OpenedSource

if TYPE_CHECKING:
    from vramtui.app.signals.signaller import Signaller


def signaller_for(opened: OpenedSource, *, read_only: bool, from_command_line: bool) -> "tuple[Signaller | None, str]":
    """What sends signals, or None and the sentence that says why nothing does.

    Args:
        opened: what the dashboard shows.
        read_only: nothing is ever done to a process.
        from_command_line: that was said on the command line, not in the settings.
    """
    if opened.recording is not None:
        return None, "No signals in a replay: its pids may belong to other processes now."
    if opened.banner:
        return None, "No signals from the demo: its processes are not real."
    if opened.elsewhere:
        return None, "No signals to another host: its pids are not those of this machine."
    if read_only:
        where = "started with --read-only" if from_command_line else "dashboard.read_only is set in the settings"
        return None, f"Signals are off: {where}."
    from vramtui.sources.host.signals import Signals  # noqa: PLC0415 - not where nothing is sent

    return Signals(), ""
