"""The Plan screen's model: the user's choices, the maps made for them, and the view of one moment."""

from collections.abc import Sequence
from functools import partial

import msgspec

from vramtui.app.plan.axes import Axis, axes_of, begin_where_it_fits, fitted, rows_that_fit, usual_axes, variant
from vramtui.app.plan.grid import Advice, CardAnswers, Cells, GridCells, GridQuestion, Holds, Steps, agreeing
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.text import printable
from vramtui.core.estimate.assumptions import settings_of
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.estimators.planner.planner import Edge, Effect, FitResult, worthwhile

AS_IN_FILE = "/file"
USUAL_CARDS = 8
MAX_MAPS, ADVICE, CARD_TABLES = 8, 64, 4
NO_PRESET = (
    "No preset selected. Press p to choose one: a map of what fits a card appears here, over any two of its sizes,"
    " precision, optimizer, adapters and sharding."
)
OWN_CODE = "This preset is your own code and has no values to vary here. Press p for another preset."


class MapView(msgspec.Struct, frozen=True, eq=False):
    """One map: `done` of `total` cells are answered. Until `is_exact`, only `exact_cells` are."""

    title: str
    x: Axis
    y: Axis
    cells: Cells
    done: int
    total: int
    is_exact: bool
    exact_cells: frozenset[tuple[int, int]] = frozenset()


class AdviceView(msgspec.Struct, frozen=True, eq=False):
    """The advice so far; see `grid.Advice`. `changes` are the effects worth showing, best first."""

    edges: tuple[Edge, ...] = ()
    mitigations: tuple[tuple[str, str], ...] | None = None
    with_them: int | None = None
    cards: tuple[Holds, ...] = ()
    changes: tuple[Effect, ...] = ()
    is_whole: bool = False


class PlanSide(msgspec.Struct, frozen=True, eq=False):
    """A variant with its estimate, or why there is none: `what` is a heading, `how` names the varied values."""

    what: str
    how: str
    workload: Workload | None
    estimate: Estimate | None
    answer: FitResult | None

    @property
    def process(self) -> int | None:
        """Bytes of the process, even if it does not start; None if unknown."""
        if self.estimate is not None:
            return self.estimate.process
        return self.answer.process if self.answer is not None else None


class PlanView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Plan screen: a `problem` instead of a map, or one map, or two of the same axes.

    Attributes:
        where: the card's name on the screen.
        side: the selected cell; `other` is the variant compared with it.
        change: index of the selected change of the advice.
        assumed: settings that are only assumed, with their values; empty if they change little.
        changed: whether the preset's values differ from its file.
    """

    problem: str = ""
    preset: str = ""
    device: Device | None = None
    where: str = ""
    maps: tuple[MapView, ...] = ()
    cursor: tuple[int, int] = (0, 0)
    side: PlanSide | None = None
    other: PlanSide | None = None
    advice: AdviceView = AdviceView()
    change: int = 0
    assumed: str = ""
    changed: bool = False
    view_only: bool = False


class PlanModel:
    """Makes the Plan screen's part of the View. It uses no widget and no thread.

    Attributes:
        second: key of the preset to compare with, or AS_IN_FILE; empty for none.
        card: the selected card, `where` its name; None for the card of Watch.
        jobs: what is still unknown of the latest view.
    """

    __slots__ = (
        "_about", "_axes", "_cards", "_change", "_cursor", "_rows", "_usual_rows",
        "_wanted", "advice", "axes", "card", "card_tables", "changes", "heatmap", "jobs", "maps", "second", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.second = ""
        self.card: Device | None = None
        self.where = ""
        self._wanted = ("", "")
        # The axis of the rows if no value of the usual one fits.
        self._rows = ""
        self._cursor: tuple[int, int] | None = None
        self._about: object = None
        self.maps: Latest[object, GridCells] = Latest(MAX_MAPS)
        self._axes: Latest[object, tuple[Axis, Axis]] = Latest(MAX_MAPS)
        self._usual_rows: Latest[object, str] = Latest(MAX_MAPS)
        self.advice: Latest[object, Advice] = Latest(ADVICE)
        self._cards: Latest[object, CardAnswers] = Latest(CARD_TABLES)
        self.card_tables: list[CardAnswers] = []
        self.jobs: dict[object, Steps] = {}
        self.axes: tuple[Axis, ...] = ()
        self.heatmap: GridCells | None = None
        self.changes: tuple[Effect, ...] = ()
        self._change = ""

    def forget_answers(self) -> None:
        """Drop all results but not the user's choices; they are computed again when the screen is shown."""
        for answers in (self.maps, self._axes, self._usual_rows, self.advice, self._cards):
            answers.clear()
        self.card_tables, self.jobs = [], {}
        self.heatmap, self.changes = None, ()

    def choose_axis(self, name: str, *, across: bool) -> None:
        """Vary `name` along the columns or the rows; if the other axis has it, they swap."""
        x, y = self.names
        if across:
            self._wanted = (name, x if name == y else y)
        else:
            self._wanted = (y if name == x else x, name)
        self._cursor = None

    def swap(self) -> None:
        x, y = self.names
        self._wanted = (y, x)
        self._cursor = None if self._cursor is None else (self._cursor[1], self._cursor[0])

    @property
    def names(self) -> tuple[str, str]:
        """The axes of the map: the chosen ones if the preset has them, else the usual ones."""
        names = [axis.name for axis in self.axes]
        across, down = usual_axes(self.axes)
        usual = across, self._rows if self._rows in names else down
        x, y = (wanted if wanted in names else other for wanted, other in zip(self._wanted, usual, strict=True))
        return (x, y) if x != y else (x, next(name for name in (*usual, *names) if name != x))

    @property
    def cursor(self) -> tuple[int, int]:
        """The selected cell."""
        if self._cursor is not None or self.heatmap is None:
            return self._cursor or (0, 0)
        return self.heatmap.start

    def go(self, x: int, y: int) -> None:
        """Select a cell, or the nearest one at the edge."""
        if self.heatmap is not None:
            asked = self.heatmap.question
            self._cursor = max(0, min(x, len(asked.x.amounts) - 1)), max(0, min(y, len(asked.y.amounts) - 1))

    def go_home(self) -> None:
        """Select the preset's own values."""
        self._cursor = None

    def go_to_edge(self) -> bool:
        """Select the last cell of the row that fits; False if none does."""
        if self.heatmap is None:
            return False
        row = self.heatmap.cells()[self.cursor[1]]
        fitting = [x for x, answer in enumerate(row) if answer is not None and answer.fits]
        if fitting:
            self.go(fitting[-1], self.cursor[1])
        return bool(fitting)

    @property
    def change(self) -> int:
        """Index of the selected change. Its name is kept, so it stays selected when more changes are found."""
        return next((at for at, effect in enumerate(self.changes) if effect.mitigation == self._change), 0)

    def choose_change(self, at: int | None) -> None:
        """Select a change by its index, which stops at both ends; None selects the first from now on."""
        if at is None:
            self._change = ""
        elif self.changes:
            self._change = self.changes[max(0, min(at, len(self.changes) - 1))].mitigation

    def ask_cards(self, state: DashboardState, cards: Sequence[Device]) -> list[tuple[str, CardAnswers]]:
        """The cell's variant and the one compared with it, each with its answers on `cards`. They are filled until
        `forget_cards`.
        """
        shown = self.view(state)
        sides = [(shown.preset, shown.side), (shown.other.what if shown.other is not None else "", shown.other)]
        exact = state.predictor.exact
        asked: list[tuple[str, CardAnswers]] = []
        for name, side in sides:
            if side is not None and side.workload is not None:
                make = partial(CardAnswers, side.workload, cards, exact)
                asked.append((name, self._cards.get_or_make(side.workload, make)))
        self.card_tables = [answers for _, answers in asked]
        return asked

    def forget_cards(self) -> None:
        """Stop filling the answers of `ask_cards`."""
        self.card_tables = []

    def view(self, state: DashboardState) -> PlanView:
        """Return what is known by now; `jobs` is the rest."""
        self.jobs, self.changes = {answers: answers.find for answers in self.card_tables if not answers.is_whole}, ()
        preset_file = state.panel_preset()
        problem = _problem(preset_file)
        if preset_file is None or problem:
            self.axes, self.heatmap = (), None
            return PlanView(problem=problem)
        gpus = state.sample.gpus if state.sample is not None else ()
        # Sharding is tried over all GPUs of this machine, or over those of a usual machine.
        here = sum(gpu.mig_parent is None for gpu in gpus)
        cards = here if here > 1 else USUAL_CARDS
        device = self.card or state.device()
        workload, original = state.workload(preset_file), preset_file.preset.workload
        self.axes = axes_of(workload, original, cards)

        def fits(tried: Workload) -> bool:
            """Return whether the card holds a variant, by the quick estimate."""
            return (state.predictor.total(tried, device) or device.total_memory + 1) <= device.total_memory

        self._rows = self._usual_rows.get_or_make(
            (self.axes, workload, device, cards), lambda: rows_that_fit(self.axes, workload, cards, fits)
        )
        across, down = (next(axis for axis in self.axes if axis.name == name) for name in self.names)
        x, y = self._axes.get_or_make(
            ((across, down), workload, device, cards),
            lambda: begin_where_it_fits((across, down), workload, cards, fits),
        )
        about = (preset_file.key, x.name, y.name)
        if about != self._about:
            self._about, self._cursor = about, None
        heatmap = self.heatmap = self._heatmap(GridQuestion(workload, device, x, y, cards), state)
        side = self._side(state, heatmap)
        second = self._second(state, preset_file, heatmap)
        alike = max(1, sum(device_of(gpu) == device for gpu in gpus))
        advice = self._advise(state, side, device, alike)
        self.changes = advice.changes
        process = side.estimate.process if side.estimate is not None else None
        key = printable(preset_file.key)
        maps = [_map(key, heatmap, agreeing(heatmap, self.cursor, process, advice.edges))]
        if second is not None:
            maps.append(_map(second[1].what, second[0], second[0].cells()))
        where = self.where
        if self.card is None:
            where = printable(device.name)
            index = next((gpu.index for gpu in gpus if device_of(gpu) == device), None)
            if index is not None:
                where = f"GPU {index}, {where}"
        guessed = workload == original and preset_file.assumed
        return PlanView(
            preset=key,
            device=device,
            where=where,
            maps=tuple(maps),
            cursor=self.cursor,
            side=side,
            other=second[1] if second is not None else None,
            advice=advice,
            change=self.change,
            assumed=printable(", ".join(settings_of(preset_file)))
            if guessed and state.session.guesses.range_of(preset_file, device) is not None
            else "",
            changed=workload != original,
        )

    def _heatmap(self, asked: GridQuestion, state: DashboardState) -> GridCells:
        start = (asked.x.present or 0, asked.y.present or 0)
        heatmap = self.maps.get_or_make(asked, lambda: GridCells(asked, start, state.predictor.exact))
        if not heatmap.is_whole:
            self.jobs[heatmap] = heatmap.fill
        return heatmap

    def _side(self, state: DashboardState, heatmap: GridCells) -> PlanSide:
        """The variant under the cursor."""
        x, y = self.cursor
        asked, answer = heatmap.question, heatmap.cells()[y][x]
        how = f"{asked.x.words(x)} · {asked.y.words(y)}"
        try:
            workload = heatmap.workload_at(x, y)
        except UserError as error:
            return PlanSide("this cell", how, None, None, answer or FitResult(None, fits=False, reason=str(error)))
        estimate, refused = _ask_estimate(state, workload, asked.device)
        return PlanSide("this cell", how, workload, estimate, answer or refused)

    def _second(
        self, state: DashboardState, preset_file: PresetFile, heatmap: GridCells
    ) -> tuple[GridCells, PlanSide] | None:
        """The other preset's map over the same values, and its variant to compare with the cursor's."""
        in_file = self.second in {AS_IN_FILE, preset_file.key}
        other = preset_file if in_file else state.presets.get(self.second)
        if not self.second or other is None or _problem(other):
            return None
        asked = heatmap.question
        workload = other.preset.workload if in_file else state.workload(other)
        x, y = (fitted(axis, workload) for axis in (asked.x, asked.y))
        answers = self._heatmap(GridQuestion(workload, asked.device, x, y, asked.cards), state)
        what, how = f"{printable(other.key)}{' as saved' if in_file else ''}", "as saved"
        if not in_file:
            across, down = self.cursor
            how = f"{x.words(across)} · {y.words(down)}"
            try:
                alike = variant(workload, {x.name: x.amounts[across], y.name: y.amounts[down]}, asked.cards)
                estimate, answer = _ask_estimate(state, alike, asked.device)
            except UserError:
                estimate = None
            if estimate is not None:
                return answers, PlanSide(what, how, alike, estimate, answer)
            how = f"unchanged, because {how} is not possible"
        return answers, PlanSide(what, how, workload, *_ask_estimate(state, workload, asked.device))

    def _advise(self, state: DashboardState, side: PlanSide, device: Device, alike: int) -> AdviceView:
        """The advice about the cursor's variant on one of `alike` cards."""
        workload = side.workload
        if workload is None or side.process is None:
            return AdviceView()
        gpus = max(workload.parallel.ranks if workload.parallel is not None else 1, alike)
        advice = self.advice.get_or_make(
            (workload, device), lambda: Advice(workload, device, gpus, state.predictor.exact)
        )
        if not advice.is_whole:
            self.jobs[advice] = advice.find
        return AdviceView(
            # The largest sizes are exact: they wait until the cell's figure is.
            edges=() if state.predictor.is_quick(workload, device) else advice.edges,
            mitigations=advice.mitigations,
            with_them=advice.with_them,
            cards=advice.cards,
            changes=worthwhile(advice.effects, side.process, advice.edges),
            is_whole=advice.is_whole,
        )


def _problem(preset_file: PresetFile | None) -> str:
    if preset_file is None:
        return NO_PRESET
    return OWN_CODE if isinstance(preset_file.preset.workload.model, TorchModel) else ""


def _ask_estimate(
    state: DashboardState, workload: Workload, device: Device
) -> tuple[Estimate | None, FitResult | None]:
    """The estimate of the workload, or why there is none."""
    answer = state.predictor.ask(workload, device)
    refused = FitResult(None, fits=False, reason=answer.problem) if answer.estimate is None else None
    return answer.estimate, refused


def _map(title: str, heatmap: GridCells, cells: Cells) -> MapView:
    asked, exact_cells = heatmap.question, frozenset(heatmap.exact_cells)
    return MapView(title, asked.x, asked.y, cells, heatmap.done, heatmap.total, heatmap.is_exact, exact_cells)
