"""Which card does it need: one or two jobs on every card, in groups, of which one can be chosen for the map."""

from collections.abc import Sequence
from itertools import groupby

import msgspec
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from vramtui.app.choosers.chooser import Chooser
from vramtui.app.choosers.fuzzy_rank import ranked
from vramtui.app.plan.grid import CardAnswers
from vramtui.app.themes import FIT_COLOURS
from vramtui.app.ui.lines import fit
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.estimators.planner.card_table import FSDP_NOTE, LARGEST_TITLES, CardFit, can_share
from vramtui.estimators.planner.keys import usual_key

NAME, MEMORY, FIT, LARGEST, SHARED = 25, 10, 16, 11, 7
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
        found = ranked(wanted, self._rows, lambda row: (row.name, row.group), lambda row: places[row.key])
        options: list[Option] = []
        self._columns = {}
        for group, rows in groupby(found, lambda row: row.group):
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
        return tuple(answers.found.get(row.device) for _, answers in self._visible_tables)

    @property
    def _visible_tables(self) -> Sequence[tuple[str, CardAnswers]]:
        """As many jobs as there is room for."""
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
        lines += [names.rstrip()] if len(shown) > 1 else []
        return "\n".join([*lines, columns])

    def _line(self, row: CardRow, answers: Sequence[CardFit | None]) -> Content:
        memory = format_bytes(row.device.total_memory)
        pieces: list[Content | str | tuple[str, str]] = [
            (fit(row.name, NAME - 1).ljust(NAME), "bold"),
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
