"""The windows in which a person chooses what the Plan screen varies, for which card, and what it is set beside."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets.option_list import Option

from vramtui.app.choosers.chooser import Chooser
from vramtui.app.choosers.fuzzy_rank import ranked
from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.plan.model import AS_IN_FILE, PlanModel
from vramtui.app.plan.widgets.cards import CardChooser, CardRow
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import group_of
from vramtui.core.observation.snapshot import device_of
from vramtui.estimators.planner.card_table import known_cards

Choice = tuple[str, str, str]
USUAL, NOTHING = "/usual", "/nothing"
HERE = "this machine"


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


class PlanChoices:
    """Each window changes the model, and the screen is drawn again."""

    def __init__(self, shared: AppContext, model: PlanModel) -> None:
        self._app = shared.app
        self._state = shared.state
        self._redraw = shared.redraw.now
        self._model = model

    def choose_axis(self, across: bool) -> None:
        """Ask what is to be varied along the columns or the rows."""
        model = self._model
        if not model.axes:
            self._app.notify(why_no_preset(self._state), markup=False)
            return
        choices = [(axis.name, axis.name, f"{axis.title}: {_range(axis.labels)}") for axis in model.axes]

        def on_choice(name: str | None) -> None:
            if name is not None:
                model.choose_axis(name, across=across)
                self._redraw()

        title = "Horizontal axis (columns)" if across else "Vertical axis (rows)"
        self._app.push_screen(PlanChooser(title, choices, model.names[0 if across else 1]), on_choice)

    def choose_card(self) -> None:
        """Which card does it need: the cell's variant on every card, of which one can be chosen for the map."""
        model = self._model
        gpus = self._state.sample.gpus if self._state.sample is not None else ()
        usual = self._state.device()
        rows = [CardRow(USUAL, HERE, "as on Watch", usual)]
        rows += [
            CardRow(f"/{gpu.uuid}", HERE, f"GPU {gpu.index}, {printable(gpu.name)}", device_of(gpu))
            for gpu in gpus
            if gpu.memory.total is not None
        ]
        rows += [CardRow(card.name, group_of(card.name), card.name, card) for card in known_cards()]
        tables = model.ask_cards(self._state, tuple(dict.fromkeys(row.device for row in rows)))
        by_key = {row.key: row for row in rows}

        def on_choice(key: str | None) -> None:
            model.forget_cards()
            if key is not None:
                row = by_key[key]
                model.where, model.card = ("", None) if key == USUAL else (row.name, row.device)
                self._state.planned = model.card
            self._redraw()

        named = (row.key for row in rows if model.card is not None and row.name == model.where)
        self._app.push_screen(CardChooser(rows, tables, next(named, USUAL)), on_choice)
        self._redraw()

    def choose_second(self) -> None:
        """Ask what the preset is to be set beside."""
        model = self._model
        if not model.axes:
            self._app.notify(why_no_preset(self._state), markup=False)
            return
        choices = [
            (NOTHING, "nothing", "no comparison"),
            (AS_IN_FILE, "its saved file", "the cell beside this preset's saved values"),
        ]
        choices += [
            (found.key, printable(found.key), printable(found.preset.name))
            for found in sorted(self._state.presets.values(), key=lambda found: found.key)
            if found.key != self._state.panel_key
        ]

        def on_choice(key: str | None) -> None:
            if key is not None:
                model.second = "" if key == NOTHING else key
                self._redraw()

        self._app.push_screen(PlanChooser("Compare with", choices, model.second or NOTHING), on_choice)


def _range(labels: tuple[str, ...]) -> str:
    """Labels in short."""
    return ", ".join(labels) if len(labels) < 6 else f"{labels[0]}, {labels[1]} … {labels[-1]}"
