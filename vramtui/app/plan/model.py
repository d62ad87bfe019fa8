"""What a person has chosen on the Plan screen, the maps that were made for it, and what is left to find out."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vramtui.app.plan.axes import Axis, axes_of, begin_where_it_fits, fitted, rows_that_fit, usual_axes, variant
from vramtui.app.plan.grid import Advice, CardAnswers, GridCells, GridQuestion, agreeing
from vramtui.app.plan.view import AdviceView, MapView, PlanSide, PlanView
from vramtui.app.plan.worker import Steps
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.text import printable
from vramtui.core.estimate.assumptions import settings_of
from vramtui.core.estimate.devices import CARDS, Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.estimators.planner.planner import Effect, FitResult, worthwhile

AS_IN_FILE = "/file"
USUAL_CARDS = 8
MAX_MAPS, ADVICE, CARD_TABLES = 8, 64, 4
NO_PRESET = (
    "No preset selected. Press p to choose one: a map of what fits a card appears here, over any two of its sizes,"
    " precision, optimizer, adapters and sharding."
)
OWN_CODE = "A preset of your own code can only be traced: it has no values to vary here. Press p for another."


class Choice:
    """Which change has the cursor; known by its name, so that it stays when more of them are found out."""

    __slots__ = ("_name",)

    def __init__(self) -> None:
        self._name = ""

    def at(self, shown: tuple[Effect, ...]) -> int:
        """The index of the chosen change among those shown; 0 until one is chosen."""
        return next((at for at, effect in enumerate(shown) if effect.mitigation == self._name), 0)

    def go(self, shown: tuple[Effect, ...], at: int) -> None:
        """Choose the one at a place; it stops at both ends."""
        if shown:
            self._name = shown[max(0, min(at, len(shown) - 1))].mitigation

    def forget(self) -> None:
        """Back to the first."""
        self._name = ""


class PlanModel:
    """Makes the Plan screen's part of the View. Knows no widget and no thread."""

    __slots__ = (
        "_about", "_advice", "_axes", "_card_tables", "_cards", "_cursor", "_maps", "_open", "_rows", "_usual_rows",
        "_wanted", "axes", "card", "changes", "choice", "heatmap", "second", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.second = ""
        self.card: Device | None = None
        self.where = ""
        self._wanted = ("", "")
        # The axis of the rows where none of the usual one's values fits.
        self._rows = ""
        self._cursor: tuple[int, int] | None = None
        self._about: object = None
        self._maps: Latest[object, GridCells] = Latest(MAX_MAPS)
        self._axes: Latest[object, tuple[Axis, Axis]] = Latest(MAX_MAPS)
        self._usual_rows: Latest[object, str] = Latest(MAX_MAPS)
        self._advice: Latest[object, Advice] = Latest(ADVICE)
        self._cards: Latest[object, CardAnswers] = Latest(CARD_TABLES)
        self._card_tables: list[CardAnswers] = []
        self._open: dict[object, Steps] = {}
        self.axes: tuple[Axis, ...] = ()
        self.heatmap: GridCells | None = None
        self.choice = Choice()
        self.changes: tuple[Effect, ...] = ()

    @property
    def jobs(self) -> Mapping[object, Steps]:
        """What is left to find out for the latest view."""
        return self._open

    def forget_answers(self) -> None:
        """Let go of what was worked out, not of what was chosen: it is worked out again where somebody looks."""
        for answers in (self._maps, self._axes, self._usual_rows, self._advice, self._cards):
            answers.clear()
        self._card_tables, self._open = [], {}
        self.heatmap, self.changes = None, ()

    # --- what a person chooses -----------------------------------------------------------------------------------

    def choose_axis(self, name: str, *, across: bool) -> None:
        """Vary `name` along the columns or the rows; the other axis makes room where it is that one."""
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
        """The axes of the map: those that were chosen where the preset has them, else the usual ones."""
        names = [axis.name for axis in self.axes]
        across, down = usual_axes(self.axes)
        usual = across, self._rows if self._rows in names else down
        x = self._wanted[0] if self._wanted[0] in names else usual[0]
        y = self._wanted[1] if self._wanted[1] in names else usual[1]
        return (x, y) if x != y else (x, next(name for name in (*usual, *names) if name != x))

    def move(self, across: int, down: int) -> None:
        """Move the cursor; it stops at the edges."""
        if self.heatmap is not None:
            x, y = self.cursor
            self.go(x + across, y + down)

    def go(self, x: int, y: int) -> None:
        """Put the cursor on a cell."""
        if self.heatmap is not None:
            asked = self.heatmap.question
            most_x, most_y = len(asked.x.amounts) - 1, len(asked.y.amounts) - 1
            self._cursor = (max(0, min(x, most_x)), max(0, min(y, most_y)))

    def go_home(self) -> None:
        """Back to the preset's own values."""
        self._cursor = None

    def go_to_edge(self) -> bool:
        """Select the last cell of the row that fits; False where none does."""
        if self.heatmap is None:
            return False
        row = self.heatmap.cells()[self.cursor[1]]
        fitting = [x for x, answer in enumerate(row) if answer is not None and answer.fits]
        if fitting:
            self.go(fitting[-1], self.cursor[1])
        return bool(fitting)

    @property
    def cursor(self) -> tuple[int, int]:
        """The cell that everything below the map is about."""
        if self._cursor is not None or self.heatmap is None:
            return self._cursor or (0, 0)
        return self.heatmap.start

    @property
    def maps_held(self) -> int:
        """How many maps are held, shown now or before."""
        return len(self._maps)

    @property
    def advices_held(self) -> int:
        """How many advices are kept from one drawing to the next."""
        return len(self._advice)

    def ask_cards(self, state: DashboardState, cards: Sequence[Device]) -> list[tuple[str, CardAnswers]]:
        """The cell's variant, and what it is set beside, on each of `cards`, as far as it is known; the rest is worked
        at until `forget_cards`.
        """
        shown = self.view(state)
        sides = [(shown.preset, shown.side), (shown.other.what if shown.other is not None else "", shown.other)]
        named = [(name, side.workload) for name, side in sides if side is not None and side.workload is not None]
        predictor = state.predictor

        def answers(job: Workload) -> CardAnswers:
            return self._cards.get_or_make(job, lambda: CardAnswers(job, cards, predictor.exact))

        asked = [(name, answers(job)) for name, job in named]
        self._card_tables = [one for _, one in asked]
        return asked

    @property
    def is_asking_cards(self) -> bool:
        """Whether somebody looks at them, so that they are worked at."""
        return bool(self._card_tables)

    def forget_cards(self) -> None:
        """Nobody looks at the cards any more."""
        self._card_tables = []

    # --- what goes out -------------------------------------------------------------------------------------------

    def view(self, state: DashboardState) -> PlanView:
        """What is known by now; `jobs` is the rest."""
        self._open, self.changes = {answers: answers.find for answers in self._card_tables if not answers.is_whole}, ()
        preset_file = state.panel_preset()
        problem = _problem(preset_file)
        if preset_file is None or problem:
            self.axes, self.heatmap = (), None
            return PlanView(problem=problem)
        device = self.card or state.device()
        workload, original = state.workload(preset_file), preset_file.preset.workload
        cards = cards_here(state)
        self.axes = axes_of(workload, original, cards)
        self._rows = self._rows_that_fit(workload, device, state)
        x, y = (next(axis for axis in self.axes if axis.name == name) for name in self.names)
        x, y = self._begin_where_it_fits((x, y), workload, device, state)
        self._forget_cursor((preset_file.key, x.name, y.name))
        self.heatmap = self._heatmap(GridQuestion(workload, device, x, y, cards), state)
        side = self._side(state, device)
        other_heatmap, other = self._second(state, preset_file, self.heatmap)
        advice = self._advise(state, side, device)
        process = side.estimate.process if side.estimate is not None else None
        shown = agreeing(self.heatmap, self.cursor, process, advice.edges)
        maps = [msgspec.structs.replace(_map(printable(preset_file.key), self.heatmap), cells=shown)]
        self.changes = advice.changes
        if other_heatmap is not None and other is not None:
            maps.append(_map(other.what, other_heatmap))
        return PlanView(
            preset=printable(preset_file.key),
            device=device,
            where=self.where if self.card is not None else _where(state, device),
            maps=tuple(maps),
            cursor=self.cursor,
            side=side,
            other=other,
            advice=advice,
            change=self.choice.at(advice.changes),
            tried=len(CARDS),
            assumed=_assumed(state, preset_file, device) if workload == original else "",
            changed=workload != original,
        )

    def _begin_where_it_fits(
        self, axes: tuple[Axis, Axis], workload: Workload, device: Device, state: DashboardState
    ) -> tuple[Axis, Axis]:
        """The axes of a map, by the estimates that are answered at once. They stay as they were made."""
        cards = cards_here(state)
        asked = (axes, workload, device, cards)
        return self._axes.get_or_make(
            asked, lambda: begin_where_it_fits(axes, workload, cards, _fits_by(state, device))
        )

    def _rows_that_fit(self, workload: Workload, device: Device, state: DashboardState) -> str:
        """The axis for the rows of a job that fits in none of its sizes, as `rows_that_fit` finds it."""
        cards = cards_here(state)
        asked = (self.axes, workload, device, cards)
        return self._usual_rows.get_or_make(
            asked, lambda: rows_that_fit(self.axes, workload, cards, _fits_by(state, device))
        )

    def _forget_cursor(self, about: object) -> None:
        if about != self._about:
            self._about, self._cursor = about, None

    def _heatmap(self, asked: GridQuestion, state: DashboardState) -> GridCells:
        """The map of `asked`, which may have been made before."""
        start = (asked.x.present or 0, asked.y.present or 0)
        predictor = state.predictor
        heatmap = self._maps.get_or_make(asked, lambda: GridCells(asked, start, predictor.exact))
        if not heatmap.is_whole:
            self._open[heatmap] = heatmap.fill
        return heatmap

    def _side(self, state: DashboardState, device: Device) -> PlanSide:
        """The variant under the cursor."""
        assert self.heatmap is not None
        x, y = self.cursor
        asked, answer = self.heatmap.question, self.heatmap.cells()[y][x]
        how = f"{asked.x.words(x)} · {asked.y.words(y)}"
        try:
            workload = self.heatmap.workload_at(x, y)
        except UserError as error:
            return PlanSide("this cell", how, None, None, answer or _refused(str(error)))
        estimate = state.predictor.ask(workload, device)
        if estimate.estimate is None and answer is None:
            answer = _refused(estimate.problem)
        return PlanSide("this cell", how, workload, estimate.estimate, answer)

    def _second(
        self, state: DashboardState, preset_file: PresetFile, heatmap: GridCells
    ) -> tuple[GridCells | None, PlanSide | None]:
        """The other preset's map over the same values, and its variant beside the cursor's."""
        in_file = self.second in {AS_IN_FILE, preset_file.key}
        other = preset_file if in_file else state.presets.get(self.second)
        if not self.second or other is None or _problem(other):
            return None, None
        asked = heatmap.question
        workload = other.preset.workload if in_file else state.workload(other)
        x, y = (fitted(axis, workload) for axis in (asked.x, asked.y))
        answers = self._heatmap(GridQuestion(workload, asked.device, x, y, asked.cards), state)
        what = f"{printable(other.key)}{' as saved' if in_file else ''}"
        side = PlanSide(what, "as saved", workload, *_ask_estimate(state, workload, asked.device))
        if not in_file:
            across, down = self.cursor
            amounts = {x.name: x.amounts[across], y.name: y.amounts[down]}
            how = f"{x.words(across)} · {y.words(down)}"
            try:
                alike = variant(workload, amounts, asked.cards)
                estimate, answer = _ask_estimate(state, alike, asked.device)
            except UserError:
                estimate = None
            if estimate is not None:
                return answers, PlanSide(what, how, alike, estimate, answer)
            side = msgspec.structs.replace(side, how=f"unchanged, because {how} is not possible")
        return answers, side

    def _advise(self, state: DashboardState, side: PlanSide, device: Device) -> AdviceView:
        """What is known about the cursor's variant."""
        if side.workload is None or side.process is None:
            return AdviceView()
        workload = side.workload
        gpus = max(workload.parallel.ranks if workload.parallel is not None else 1, _alike(state, device))
        name = (workload, device)
        exact = state.predictor.exact
        advice = self._advice.get_or_make(name, lambda: Advice(workload, device, gpus, exact))
        if not advice.is_whole:
            self._open[advice] = advice.find
        # Largest sizes are the exact method's, and wait until the cell's figure is.
        return AdviceView(
            () if state.predictor.is_quick(workload, device) else advice.edges,
            advice.mitigations,
            advice.settings,
            advice.with_them,
            advice.cards,
            worthwhile(advice.effects, side.process, advice.edges),
            advice.is_whole,
        )


def _fits_by(state: DashboardState, device: Device) -> Callable[[Workload], bool]:
    """Whether a card holds a variant, by the estimates that are answered at once."""
    room = device.total_memory
    return lambda tried: (state.predictor.total(tried, device) or room + 1) <= room


def cards_here(state: DashboardState) -> int:
    """Over how many GPUs sharding is tried: as many as this machine has, or a usual machine's."""
    here = sum(gpu.mig_parent is None for gpu in state.sample.gpus) if state.sample is not None else 0
    return here if here > 1 else USUAL_CARDS


def _alike(state: DashboardState, device: Device) -> int:
    """How many cards like this one the machine has; 1 where it has none."""
    gpus = state.sample.gpus if state.sample is not None else ()
    return max(1, sum(device_of(gpu) == device for gpu in gpus))


def _where(state: DashboardState, device: Device) -> str:
    gpus = state.sample.gpus if state.sample is not None else ()
    index = next((gpu.index for gpu in gpus if device_of(gpu) == device), None)
    return printable(device.name) if index is None else f"GPU {index}, {printable(device.name)}"


def _assumed(state: DashboardState, preset_file: PresetFile, device: Device) -> str:
    """What is but assumed of the job whose preset was found, with the values that the map starts from."""
    if not preset_file.assumed or state.session.guesses.range_of(preset_file, device) is None:
        return ""
    return printable(", ".join(settings_of(preset_file)))


def _problem(preset_file: PresetFile | None) -> str:
    if preset_file is None:
        return NO_PRESET
    return "" if axes_of(preset_file.preset.workload, preset_file.preset.workload, USUAL_CARDS) else OWN_CODE


def _ask_estimate(
    state: DashboardState, workload: Workload, device: Device
) -> tuple[Estimate | None, FitResult | None]:
    """Estimate the workload; the second value says why there is no estimate."""
    answer = state.predictor.ask(workload, device)
    return answer.estimate, _refused(answer.problem) if answer.estimate is None else None


def _refused(reason: str) -> FitResult:
    return FitResult(None, fits=False, reason=reason)


def _map(title: str, heatmap: GridCells) -> MapView:
    asked = heatmap.question
    return MapView(
        title,
        asked.x,
        asked.y,
        heatmap.cells(),
        heatmap.done,
        heatmap.total,
        heatmap.is_exact,
        frozenset(heatmap.exact_cells),
    )
