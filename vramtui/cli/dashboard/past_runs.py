"""Past runs as the dashboard's History screen asks for them: those of the history, or the demo's."""

import platform
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.paths import run_history
from vramtui.cli.common.settings import folder_of
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import SnapshotSettings

if TYPE_CHECKING:
    from vramtui.cli.dashboard.services import SnapshotSaver
    from vramtui.core.runs.run import StoredRun
    from vramtui.records.run_history import RunHistory


MOST = 10_000
DEMO_HOST = "demo-gpu01"


def past_runs(saver: "SnapshotSaver", *, demo: bool, made_up: bool) -> "PastRuns | DemoPast":
    """The history's, or those that the demo makes up."""
    if demo or (made_up and not run_history().path.exists()):
        return DemoPast(time.time(), saver)
    return PastRuns(run_history, saver)


def _report(stored: "StoredRun", settings: SnapshotSettings) -> list[str]:
    """Write a run to the folder of snapshots, in their formats."""
    from vramtui.records.export.run_export import save_run

    return [str(path) for path in save_run(stored, folder_of(settings), settings.formats)]


def _file_stamp(path: Path) -> tuple[int, int] | None:
    """The time of a file's last write, and its size; None without a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def still_running(runs: "Iterable[StoredRun]") -> "tuple[StoredRun, ...]":
    """The runs, those of this host whose process is gone no longer `running`."""
    from vramtui.core.runs.run_list import with_gone
    from vramtui.sources.host.processes import process_is_gone

    return with_gone(runs, platform.node(), process_is_gone)


class PastRuns:
    """Finished runs, read from the history file.

    Args:
        open_history: where runs are kept.
        saver: knows how snapshots are saved; reports follow.
    """

    note = ""

    def __init__(self, open_history: "Callable[[], RunHistory]", saver: "SnapshotSaver") -> None:
        self._open_history = open_history
        self._saver = saver

    def stamp(self) -> object:
        """Size and time of the database's files; they change with every write."""
        path = self._open_history().path
        return [_file_stamp(path), _file_stamp(path.with_name(f"{path.name}-wal"))]

    def runs(self) -> "tuple[StoredRun, ...]":
        """The latest of them."""
        return still_running(self._open_history().runs(limit=MOST))

    def forget(self, number: int) -> None:
        if not self._open_history().forget(number):
            raise UserError(f"run {number} is not in the history any more")

    def report(self, stored: "StoredRun") -> list[str]:
        return _report(stored, self._saver.settings)


class DemoPast:
    """The demo's: made anew at every start, and never written down.

    Args:
        now: seconds since the epoch.
        saver: knows how snapshots are saved; reports follow.
    """

    note = "the demo's, not real"

    def __init__(self, now: float, saver: "SnapshotSaver") -> None:
        self._now = now
        self._saver = saver
        self._runs: tuple[StoredRun, ...] | None = None

    def stamp(self) -> object:
        """How many are left."""
        return len(self.runs())

    def runs(self) -> "tuple[StoredRun, ...]":
        """A fortnight of somebody's work."""
        if self._runs is None:
            from vramtui.cli.dashboard.demo_runs import demo_runs

            self._runs = demo_runs(self._now, DEMO_HOST)
        return self._runs

    def forget(self, number: int) -> None:
        """Remove one until the next start."""
        self._runs = tuple(stored for stored in self.runs() if stored.id != number)

    def report(self, stored: "StoredRun") -> list[str]:
        return _report(stored, self._saver.settings)
