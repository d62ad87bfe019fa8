"""A short list with a filter: an axis, a card, or a preset to set beside."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets.option_list import Option

from vramtui.app.choosers.chooser import Chooser
from vramtui.app.choosers.ranking import ranked

Choice = tuple[str, str, str]


class PlanChooser(Chooser):
    """Dismissed with what was chosen; None when nothing was.

    Args:
        title: what is asked.
        choices: of each what it is called here, its name in bold and what is said about it.
        present: the one that is chosen now.
    """

    DEFAULT_CSS = """
    PlanChooser > #window { width: 84; }
    PlanChooser OptionList { max-height: 20; }
    """

    def __init__(self, title: str, choices: Sequence[Choice], present: str) -> None:
        super().__init__(title)
        self._choices, self._present = choices, present

    def fill(self, wanted: str) -> None:
        """List what holds every word, with the cursor on the present choice until something is typed."""
        places = {identity: at for at, (identity, _, _) in enumerate(self._choices)}
        found = ranked(wanted, self._choices, lambda one: (one[1], one[2]), lambda one: places[one[0]])
        width = max((len(name) for _, name, _ in self._choices), default=0) + 2
        options = [
            Option(Content.assemble((f"{name:<{width}}", "bold"), (about, "$muted")), identity)
            for identity, name, about in found
        ]
        self.list_options(options, "nothing matches", None if wanted.strip() else self._present)
