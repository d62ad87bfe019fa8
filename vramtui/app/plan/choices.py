"""The windows of Plan: what it varies, for which card of all that are known, and what it is set beside."""

from collections.abc import Sequence
from itertools import groupby

import msgspec
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.plan.grid import CardAnswers
from vramtui.app.plan.model import AS_IN_FILE, PlanModel
from vramtui.app.themes import FIT_COLOURS
from vramtui.app.ui.chooser import Chooser, ranked
from vramtui.app.ui.dialog import ask
from vramtui.app.ui.lines import fit
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device, emulation_note, group_of
from vramtui.core.observation.snapshot import device_of
from vramtui.estimators.planner.card_table import FSDP_NOTE, LARGEST_TITLES, CardFit, can_share, known_cards
from vramtui.estimators.planner.keys import usual_key

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
        choices = ranked(wanted, self._choices, lambda one: (one[1], one[2]), lambda one: places[one[0]])
        width = max((len(name) for _, name, _ in self._choices), default=0) + 2
        options = [
            Option(Content.assemble((f"{name:<{width}}", "bold"), (about, "$muted")), identity)
            for identity, name, about in choices
        ]
        self.list_options(options, "nothing matches", None if wanted.strip() else self._present)


class PlanChoices:
    """Each window changes the model, and the screen is drawn again."""

    __slots__ = ("_app", "_model", "_redraw", "_state")

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

        def on_choice(name: str) -> None:
            model.choose_axis(name, across=across)
            self._redraw()

        title = "Horizontal axis (columns)" if across else "Vertical axis (rows)"
        ask(self._app, PlanChooser(title, choices, model.names[0 if across else 1]), on_choice)

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
            (preset_file.key, printable(preset_file.key), printable(preset_file.preset.name))
            for preset_file in sorted(self._state.presets.values(), key=lambda preset: preset.key)
            if preset_file.key != self._state.panel_key
        ]

        def on_choice(key: str) -> None:
            model.second = "" if key == NOTHING else key
            self._redraw()

        ask(self._app, PlanChooser("Compare with", choices, model.second or NOTHING), on_choice)


def _range(labels: tuple[str, ...]) -> str:
    """Labels in short."""
    return ", ".join(labels) if len(labels) < 6 else f"{labels[0]}, {labels[1]} … {labels[-1]}"


NAME, MEMORY, FIT, LARGEST, SHARED = 25, 10, 16, 11, 7
BF16_MARK = " · no bf16"
BF16_NOTE = "no bf16: emulated below compute capability 8.0, where no fused attention takes it and scores are kept"
REFRESH = 0.25  # seconds between two looks at what is found meanwhile


class CardRow(msgspec.Struct, frozen=True):
    """A card to choose: what it is called in the list and there, and the group that it stands in."""

    key: str
    group: str
    name: str
    device: Device


class CardChooser(Chooser):
    """Dismissed with a row's key; None where none was chosen.

    Args:
        rows: the cards, group by group.
        tables: the jobs, each with its name and what is found of it.
        present: the row that is chosen now.
    """

    DEFAULT_CSS = """
    CardChooser > #window { width: 116; }
    CardChooser > #window > #heading { height: auto; color: $muted; padding: 0 1; }
    """

    def __init__(self, rows: Sequence[CardRow], tables: Sequence[tuple[str, CardAnswers]], present: str) -> None:
        super().__init__("Which card does it need?")
        self._rows, self._tables, self._present = rows, tables, present
        self._columns: dict[str, tuple[CardFit | None, ...]] = {}

    def inside(self) -> ComposeResult:
        """The filter, what the columns are, and the cards."""
        filter_line, cards = super().inside()
        yield filter_line
        yield Static(self._heading(), id="heading", markup=False)
        yield cards

    def on_mount(self) -> None:
        """Fill in answers as they come."""
        self.set_interval(REFRESH, self.fill_in)

    def fill(self, wanted: str) -> None:
        """List what holds every word, under the groups' names until one is typed."""
        places = {row.key: at for at, row in enumerate(self._rows)}
        choices = ranked(wanted, self._rows, lambda row: (row.name, row.group), lambda row: places[row.key])
        options: list[Option] = []
        self._columns = {}
        for group, rows in groupby(choices, lambda row: row.group):
            if not wanted.strip():
                options.append(Option(Content.styled(group, "$primary"), disabled=True))
            for row in rows:
                self._columns[row.key] = self._answers(row)
                options.append(Option(self._line(row, self._columns[row.key]), row.key))
        self.list_options(options, "nothing matches", None if wanted.strip() else self._present)

    @property
    def is_whole(self) -> bool:
        """Whether every job has its answer on every card."""
        return all(answers.is_whole for _, answers in self._tables)

    def fill_in(self) -> None:
        """Show the answers that have come since."""
        shown = self.query_one(OptionList)
        for row in self._rows:
            now = self._answers(row)
            if row.key in self._columns and now != self._columns[row.key]:
                self._columns[row.key] = now
                shown.replace_option_prompt(row.key, self._line(row, now))

    def _answers(self, row: CardRow) -> tuple[CardFit | None, ...]:
        return tuple(answers.fits.get(row.device) for _, answers in self._visible_tables)

    @property
    def _visible_tables(self) -> Sequence[tuple[str, CardAnswers]]:
        """The tables of as many jobs as there is room for."""
        room = self.room(116) - NAME - MEMORY
        return self._tables[: max(1, room // (FIT + LARGEST + SHARED))]

    def _heading(self) -> str:
        """The columns' names, and above them those of the jobs where there are two."""
        shown = self._visible_tables
        columns, names = f"{'card':<{NAME}}{'memory':>{MEMORY}}", " " * (NAME + MEMORY)
        for name, answers in shown:
            shared = "FSDP" if can_share(answers.workload) else ""
            title = LARGEST_TITLES.get(usual_key(answers.workload), "largest")
            columns += f"  {'  spare':<{FIT - 2}}{title:>{LARGEST}}{shared:>{SHARED}}"
            names += f"    {fit(name, FIT + LARGEST + SHARED - 4)}"
        lines = [FSDP_NOTE] if any(can_share(answers.workload) for _, answers in shown) else []
        lines += [BF16_NOTE] if any(self._lacks_bf16(row) for row in self._rows) else []
        lines += [names.rstrip()] if len(shown) > 1 else []
        return "\n".join([*lines, columns])

    def _lacks_bf16(self, row: CardRow) -> bool:
        return any(emulation_note(answers.workload, row.device) for _, answers in self._tables)

    def _line(self, row: CardRow, answers: Sequence[CardFit | None]) -> Content:
        memory = format_bytes(row.device.total_memory)
        pieces: list[Content | str | tuple[str, str]] = [
            (fit(row.name + (BF16_MARK if self._lacks_bf16(row) else ""), NAME - 1).ljust(NAME), "bold"),
            f"{memory:>{MEMORY}}",
        ]
        for answer in answers:
            pieces += _fit_columns(answer)
        return Content.assemble(*pieces)


def _fit_columns(answer: CardFit | None) -> list[Content | str | tuple[str, str]]:
    """The columns of one job on one card."""
    if answer is None:
        return [("  …".ljust(FIT + LARGEST + SHARED), "$muted")]
    if answer.fit is None:
        return [(f"  {answer.spare_label}".ljust(FIT + LARGEST + SHARED), "$muted")]
    return [
        (f"  {answer.spare_label:<{FIT - 2}}", f"${FIT_COLOURS[answer.fit.verdict]}"),
        f"{answer.largest_label:>{LARGEST}}",
        (f"{answer.fsdp_label:>{SHARED}}", "$muted"),
    ]
