"""The windows that list keys and problems, on every screen."""

from vramtui.app.context import AppContext
from vramtui.app.help.bindings import focused_section, keys_shown


class HelpController:
    """Each window shows the moment in which it was opened."""

    __slots__ = ("_shared",)

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared

    def show_problems(self) -> None:
        """What could not be done, and what to do about it."""
        from vramtui.app.help.dialog import Problems

        first = self._shared.screens.first
        if first is not None:
            self._shared.app.push_screen(Problems(first.view, self._shared.notices.earlier))

    def show_keys(self) -> None:
        """Every key; who has found the help needs no hint any more."""
        from vramtui.app.help.dialog import Help

        self._shared.state.dismiss_hint()
        app, screen = self._shared.app, self._shared.screens.current
        app.push_screen(Help(keys_shown(app, screen), focused_section(screen)))
