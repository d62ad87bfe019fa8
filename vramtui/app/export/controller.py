"""Snapshots: written with one key, as chosen once."""

from typing import Protocol

from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import SnapshotSettings


class SnapshotWriter(Protocol):
    """Formats and folder of snapshots, kept from start to start."""

    settings: SnapshotSettings

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on.

        Raises:
            UserError: the choice holds now, but cannot be kept for later.
        """
        ...


class ExportController(DashboardBase):
    """The keys of snapshots. `save_choice` is None where nothing can be chosen."""

    save_choice: SnapshotWriter | None = None

    def action_snapshot(self) -> None:
        """Save a snapshot to files."""
        self.save_snapshot()

    def action_snapshot_options(self) -> None:
        """Choose formats and folder."""
        choice = self.save_choice
        if choice is None:
            self.notify("Saving is not available here.", markup=False)
            return
        from vramtui.app.export.options_dialog import SaveOptions  # noqa: PLC0415 - loads the list widgets

        def chosen(settings: SnapshotSettings | None) -> None:
            if settings is None:
                return
            try:
                choice.choose(settings)
            except UserError as error:
                self.notify(f"Applies until you quit. {error}", severity="error", markup=False)
            else:
                self.notify("Saved: s uses these options from now on.", markup=False)

        self.push_screen(SaveOptions(choice.settings), chosen)
