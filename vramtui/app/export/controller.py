"""Snapshots: the screen and its data, written to files on a thread."""

import re
import threading
from collections.abc import Callable
from typing import Protocol

from vramtui.app.context import AppContext, ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import paths_in_a_line
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import SnapshotSettings

Save = Callable[[Snapshot, str], list[str]]


class SnapshotWriter(Protocol):
    """Formats and folder of snapshots, saved in the settings."""

    settings: SnapshotSettings

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on; UserError if the choice cannot be saved."""


class ExportController:
    """Takes snapshots. `save` writes one and its picture (SVG) to files and returns their paths; UserError if not."""

    __slots__ = ("_app", "_save", "_shared", "writer")

    def __init__(self, shared: AppContext, save: Save | None, writer: SnapshotWriter | None) -> None:
        self._shared, self._app, self._save, self.writer = shared, shared.app, save, writer

    def picture(self) -> str:
        sample = self._shared.state.sample
        host = sample.host.name if sample is not None else ""
        drawn = self._app.export_screenshot(title=f"vramtui · {host}" if host else "vramtui")
        # Textual's template loads a font from a site, which would see who opens the picture, and when.
        return re.sub(r"@font-face\s*\{[^}]*\}\s*", "", drawn)

    def save(self) -> None:
        snapshot, save = self._shared.state.snapshot(), self._save
        if save is None or snapshot is None:
            self._app.notify("Nothing to save yet." if save else "Saving is not available here.")
            return
        picture = self.picture()

        def saved(paths: list[str], problem: str) -> None:
            if problem:
                self._app.notify(problem, title="Snapshot", severity="error")
            else:
                self._app.notify(paths_in_a_line(paths), title="Snapshot written")

        def write() -> None:
            from vramtui.app.export.portable_svg import portable

            try:
                paths, problem = save(snapshot, portable(picture)), ""
            except (UserError, OSError) as error:
                paths, problem = [], str(error)
            self._app.call_later(saved, paths, problem)

        threading.Thread(target=write, name="save snapshot", daemon=True).start()

    def choose(self) -> None:
        writer = self.writer
        if writer is None:
            self._app.notify("Saving is not available here.")
            return
        from vramtui.app.watch.windows import SaveOptions  # loads the list widgets

        def keep(settings: SnapshotSettings) -> None:
            try:
                writer.choose(settings)
            except UserError as error:
                self._app.notify(f"Applies until you quit. {error}", severity="error")
            else:
                self._app.notify("Saved: s uses these options from now on.")

        ask(self._app, SaveOptions(writer.settings), keep)
