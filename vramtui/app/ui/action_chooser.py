"""The command palette: every action by its name, one a line, its key at the right; and the list of themes."""

from collections.abc import Callable, Mapping, Sequence

from rich.cells import cell_len
from textual.app import App, SystemCommand
from textual.content import Content
from textual.theme import Theme
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from vramtui.app.ui.chooser import Chooser, ranked

WIDTH = 76


class ActionChooser(Chooser):
    """Dismissed with the number of the action that was chosen; None when none was.

    Args:
        actions: each with its title, its key as `help`, and what it does.
    """

    DEFAULT_CSS = f"ActionChooser > #window {{ width: {WIDTH}; }}"

    def __init__(self, actions: Sequence[SystemCommand]) -> None:
        super().__init__("Actions")
        self._actions = dict(enumerate(actions))

    def fill(self, wanted: str) -> None:
        """List what is called so, in the order of the help where several are."""
        choices = ranked(wanted, self._actions.items(), lambda one: (one[1].title, one[1].help), lambda one: one[0])
        room = self.room(WIDTH)
        self.list_options((Option(_line(action, room), str(at)) for at, action in choices), "no action is called so")


def _line(action: SystemCommand, room: int) -> Content:
    pad = max(1, room - cell_len(action.title) - cell_len(action.help))
    return Content.assemble(action.title, " " * pad, (action.help, "bold $primary"))


OURS = "vramtui-"


def choose_theme(app: App[None], show: Callable[[str], None], keep: Callable[[dict[str, object]], object]) -> None:
    """Let somebody choose a theme, which `show` draws and `keep` writes into the settings."""

    def on_choice(name: str | None) -> None:
        if name is not None:
            keep({"dashboard.theme": name})

    app.push_screen(ThemeChooser(app.available_themes, app.theme, show), on_choice)


class ThemeChooser(Chooser):
    """Dismissed with the name of the theme that was chosen; None when it is to be as before.

    Args:
        themes: those that there are, by name.
        present: the one that is shown now.
        show: draws everything in the theme of a name.
    """

    DEFAULT_CSS = """
    ThemeChooser { background: $background 0%; align: right middle; }
    ThemeChooser > #window { width: 48; }
    """

    def __init__(self, themes: Mapping[str, Theme], present: str, show: Callable[[str], None]) -> None:
        super().__init__("Theme")
        self._themes = themes
        self._present = present
        self._show = show

    def fill(self, wanted: str) -> None:
        """Ours first, then the dark ones, then the light ones."""

        def order(theme: Theme) -> tuple[bool, bool, str]:
            return (not theme.name.startswith(OURS), not theme.dark, theme.name)

        choices = ranked(wanted, self._themes.values(), lambda theme: (theme.name, _kind(theme)), order)
        options = [
            Option(Content.assemble((f"{theme.name:<28}", "bold"), (_kind(theme), "$muted")), theme.name)
            for theme in choices
        ]
        self.list_options(options, "no theme is called so", None if wanted else self._present)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show what the cursor is on."""
        if event.option.id is not None:
            self._show(event.option.id)

    def action_close(self) -> None:
        """Back to the theme from before."""
        self._show(self._present)
        self.dismiss(None)


def _kind(theme: Theme) -> str:
    return "terminal" if theme.ansi else "dark" if theme.dark else "light"
