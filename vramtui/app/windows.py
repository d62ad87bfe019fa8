"""The windows that only tell: details, problems, help, and the estimate explained."""

import msgspec

from vramtui.app.help.bindings import focused_section, keys_shown
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.screen_registry import FIRST
from vramtui.app.state import View
from vramtui.app.watch.view_builder import row_ledger


class InfoDialogs(DashboardBase):
    """Each opens on what is shown at that moment. `hint` is a line for somebody who is here for the first time."""

    hint = ""

    def complete(self, view: View, place: str) -> View:
        """Watch begins with the hint."""
        view = super().complete(view, place)
        return msgspec.structs.replace(view, hint=self.hint) if self.hint and place == FIRST else view

    def dismiss_hint(self) -> bool:
        """Take the hint away; False when there was none."""
        had, self.hint = bool(self.hint), ""
        return had

    def action_details(self) -> None:
        """Details of the selected process and its GPU."""
        from vramtui.app.watch.details import Details  # noqa: PLC0415 - not needed for the first paint

        screen = self.watch_screen
        if screen is not None:
            chosen = screen.view.chosen
            told = row_ledger(self.desk.jobs, chosen) if chosen is not None else None
            sample, grown = screen.view.sample, None
            if chosen is not None and sample is not None and sample is self.desk.sample:
                grown = self.desk.history.grown(sample.host.name, chosen.gpu.uuid)
            self.push_screen(Details(screen.view, told, grown))

    def action_explain(self) -> None:
        """The panel's estimate, part by part."""
        from vramtui.app.watch.explain import Explain  # noqa: PLC0415 - as above

        panel = self.desk.view().panel
        if panel is None:
            self.notify("Choose a preset first: p", markup=False)
        else:
            self.push_screen(Explain(panel))

    def action_problems(self) -> None:
        """What could not be done, and what to do about it."""
        from vramtui.app.help.problems import Problems  # noqa: PLC0415 - as above

        screen = self.watch_screen
        if screen is not None:
            self.push_screen(Problems(screen.view))

    def action_help(self) -> None:
        """Every key."""
        from vramtui.app.help.dialog import Help  # noqa: PLC0415 - as above

        self.dismiss_hint()
        self.push_screen(Help(keys_shown(self), focused_section(self)))
