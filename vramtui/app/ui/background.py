"""Work with files, done on threads of its own: a folder may be slow, and the screen does not wait for it."""

import threading
from collections.abc import Callable

from textual.message import Message

from vramtui.app.messages import PresetsRead, SnapshotSaved
from vramtui.app.monitor.presets import Presets
from vramtui.core.base.errors import UserError
from vramtui.core.observation.snapshot import Snapshot

Save = Callable[[Snapshot, str], list[str]]
Post = Callable[[Message], object]


def read_aside(library: Presets, post: Post) -> None:
    """Read every preset, then post PresetsRead."""

    def read() -> None:
        post(PresetsRead(library.all(), library.problems))

    threading.Thread(target=read, name="read presets", daemon=True).start()


def save_aside(save: Save, snapshot: Snapshot, svg: str, post: Post) -> None:
    """Save a snapshot and its picture, then post SnapshotSaved."""

    def write() -> None:
        try:
            post(SnapshotSaved(save(snapshot, svg)))
        except (UserError, OSError) as error:
            post(SnapshotSaved([], str(error)))

    threading.Thread(target=write, name="save snapshot", daemon=True).start()
