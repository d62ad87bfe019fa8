"""A map that fills cell by cell, and advice about one of its cells that comes sentence by sentence: both come from two
searches, and say the same at all times.
"""

from collections.abc import Iterator, Sequence

import msgspec

from vramtui.app.plan.axes import Axis, variant
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import CARDS, Device
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import fits_in
from vramtui.core.schema.workload import ServeRun, Workload
from vramtui.estimators.planner.card_table import CardFit, answers_on, card_fits
from vramtui.estimators.planner.grid import answer_for, spread
from vramtui.estimators.planner.keys import other_keys, usual_key, with_values
from vramtui.estimators.planner.planner import NEAR, Correction, Edge, Effect, FitResult, Planner

Cells = tuple[tuple[FitResult | None, ...], ...]


class GridQuestion(msgspec.Struct, frozen=True):
    """What a map is of: `workload` on `device`, over two axes; `cards` is for sharding a job that is on one GPU."""

    workload: Workload
    device: Device
    x: Axis
    y: Axis
    cards: int


class GridCells:
    """The answers so far. One thread fills it while another reads `cells`.

    Args:
        question: what it is of.
        start: the cell to begin with.
        exact: makes answers nearer that may fit, once all are there; None where nothing does.

    Attributes:
        done: how many cells are answered.
        is_exact: whether every answer that may fit is as near as it gets.
        exact_cells: those that the nearer method has answered. All others are moved as it moves those: a map is of one
            method, and has no cliff where it ends.
    """

    __slots__ = (
        "_exact", "_move", "_moves", "_nearer", "_rows", "done", "exact_cells", "is_exact", "question", "start",
    )  # fmt: skip

    def __init__(self, question: GridQuestion, start: tuple[int, int], exact: Estimator | None = None) -> None:
        self.question = question
        self.start = start
        self.done = 0
        self.is_exact = exact is None
        self._exact = exact
        self._nearer: set[tuple[int, int]] = set()
        self.exact_cells: set[tuple[int, int]] = set()
        # By row, the answer that was made nearer furthest to the right: its column, and what it differs by.
        self._moves: dict[int, tuple[int, Correction]] = {}
        self._move: Correction | None = None
        self._rows: list[list[FitResult | None]] = [[None] * len(question.x.amounts) for _ in question.y.amounts]

    @property
    def total(self) -> int:
        return len(self.question.x.amounts) * len(self.question.y.amounts)

    @property
    def is_whole(self) -> bool:
        """Whether every cell is answered, as near as it gets."""
        return self.done >= self.total and self.is_exact

    def cells(self) -> Cells:
        """A row for each value of y; None for what is not known yet."""
        if self._move is None:
            return tuple(tuple(row) for row in self._rows)
        return tuple(
            tuple(self._moved(answer, x, y) for x, answer in enumerate(row)) for y, row in enumerate(self._rows)
        )

    def _moved(self, answer: FitResult | None, x: int, y: int) -> FitResult | None:
        """An answer as the nearer method would have it by what it says of the row, or of the start."""
        if answer is None or answer.process is None or (x, y) in self.exact_cells or self._move is None:
            return answer
        process = self._moves.get(y, (0, self._move))[1].moved(answer.process)
        refused = bool(answer.reason) and not answer.fits
        return answer._replace(
            process=process, fits=not refused and fits_in(process, self.question.device.total_memory)
        )

    def workload_at(self, x: int, y: int) -> Workload:
        """The variant of a cell.

        Raises:
            UserError: it cannot be.
        """
        asked = self.question
        amounts = {asked.x.name: asked.x.amounts[x], asked.y.name: asked.y.amounts[y]}
        return variant(asked.workload, amounts, asked.cards)

    def fill(self, estimator: Estimator) -> Iterator[None]:
        """Answer a cell at each step; then make answers nearer, from the limit of what fits on."""
        columns, rows = len(self.question.x.amounts), len(self.question.y.amounts)
        for x, y in spread(columns, rows, self.start):
            if self._rows[y][x] is None:
                self._rows[y][x] = self._answer(x, y, estimator)
                self.done += 1
                yield
            if (x, y) == self.start and self._exact is not None:
                yield from self._refine(x, y, self._exact)
        if self._exact is not None and not self.is_exact:
            yield from self._refine_all(self._exact)
            self.is_exact = True

    def _refine_all(self, exact: Estimator) -> Iterator[None]:
        """Refine both sides of the limit in each row, then all else that may fit."""
        columns, rows = len(self.question.x.amounts), len(self.question.y.amounts)
        for y in range(rows):
            while at_limit := [x for x in range(columns) if (x, y) not in self._nearer and self._is_at_limit(x, y)]:
                yield from self._refine(at_limit[0], y, exact)
        for x, y in spread(columns, rows, self.start):
            yield from self._refine(x, y, exact)

    def _is_at_limit(self, x: int, y: int) -> bool:
        """Whether the limit of what fits runs beside a cell."""
        row = self.cells()[y]
        neighbours = [row[at] for at in (x - 1, x + 1) if 0 <= at < len(row)]
        here = row[x]
        if here is None or here.process is None:
            return False
        return any(other is not None and other.process is not None and other.fits != here.fits for other in neighbours)

    def _refine(self, x: int, y: int, exact: Estimator) -> Iterator[None]:
        """Make one answer nearer, where it may fit."""
        if (x, y) in self._nearer:
            return
        self._nearer.add((x, y))
        former = self._rows[y][x]
        if former is None or former.process is None or former.process > self.question.device.total_memory * NEAR:
            return
        answer = self._answer(x, y, exact)
        if answer.process is not None:
            self._rows[y][x] = answer
            self.exact_cells.add((x, y))
            move = Correction(answer.process, former.process)
            self._move = self._move or move
            if x >= self._moves.get(y, (0, move))[0]:
                self._moves[y] = x, move
        yield

    def _answer(self, x: int, y: int, estimator: Estimator) -> FitResult:
        try:
            workload = self.workload_at(x, y)
        except UserError as error:
            return FitResult(None, fits=False, reason=str(error))
        return answer_for(estimator, workload, self.question.device)


class CardAnswers:
    """One job on every card, as far as it is known. One thread finds them while another reads.

    Args:
        exact: makes answers nearer; None where nothing does.

    Attributes:
        workload: the job.
        fits: what is known, by card.
    """

    __slots__ = ("_cards", "_exact", "fits", "workload")

    def __init__(self, workload: Workload, cards: Sequence[Device], exact: Estimator | None = None) -> None:
        self.workload = workload
        self._exact = exact
        self.fits: dict[Device, CardFit] = {}
        self._cards = cards

    @property
    def is_whole(self) -> bool:
        return len(self.fits) == len(set(self._cards))

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Answer for a card at each step."""
        missing = [card for card in self._cards if card not in self.fits]
        for answer in card_fits(estimator, self.workload, missing, self._exact):
            self.fits[answer.card] = answer
            yield


class Holds(msgspec.Struct, frozen=True):
    """A card that holds the process, and how many bytes the process has there."""

    card: Device
    process: int


class Advice:
    """What can be said about one variant on one card; what is not known yet is None.

    Args:
        workload: the variant.
        device: the card.
        gpus: how many of them there are.
        exact: makes answers nearer; None where nothing does.

    Attributes:
        edges: the largest of each size that fits.
        mitigations: names and costs of the changes that make it fit with the least loss; empty where none are enough.
        settings: the keys that they set.
        with_them: bytes of the process then.
        cards: those that hold it, smallest first.
        effects: what each single change would do, as far as it is known.
    """

    __slots__ = (
        "_exact", "cards", "device", "edges", "effects", "fits", "gpus", "is_whole", "mitigations", "settings",
        "with_them", "workload",
    )  # fmt: skip

    def __init__(self, workload: Workload, device: Device, gpus: int, exact: Estimator | None = None) -> None:
        self.workload, self.device, self.gpus = workload, device, gpus
        self._exact = exact
        self.edges: tuple[Edge, ...] = ()
        self.fits: bool | None = None
        self.mitigations: tuple[tuple[str, str], ...] | None = None
        self.settings: dict[str, object] = {}
        self.with_them: int | None = None
        self.cards: tuple[Holds, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        self.is_whole = False

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Find out one thing at each step; all of it anew where it was left before its end."""
        self.edges, self.cards, self.effects = (), (), ()
        planner = Planner(estimator, self.workload, self.device, self.gpus, self._exact)
        now = answer_for(self._exact or estimator, self.workload, self.device)
        self.fits = now.fits
        yield
        first = usual_key(self.workload)
        for key in (first, *(other for other in other_keys(self.workload) if other != first)):
            self.edges = (*self.edges, planner.edge(key))
            yield
        # A server takes the share of the card that it is given: what a change frees is room for more tokens.
        asked = first if isinstance(self.workload.run, ServeRun) else None
        for effect in planner.effects(now.process or 0, asked):
            self.effects = (*self.effects, effect)
            yield
        by_size = sorted(CARDS.values(), key=lambda card: (card.total_memory, card.name))
        for card, there in answers_on(self._exact or estimator, self.workload, by_size):
            if there.fits and there.process is not None:
                self.cards = (*self.cards, Holds(card, there.process))
            yield
        if not self.fits:
            yield from self._make_fit(planner, estimator)
        self.is_whole = True

    def _make_fit(self, planner: Planner, estimator: Estimator) -> Iterator[None]:
        mitigations = planner.cheapest() or ()
        changes = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
        if mitigations:
            changed = with_values(self.workload, changes)
            self.with_them = answer_for(self._exact or estimator, changed, self.device).process
        self.settings = changes
        self.mitigations = tuple((mitigation.name, mitigation.cost) for mitigation in mitigations)
        yield


# The keys of the sizes that are varied, of which the largest is looked for.
SIZE_KEYS = {
    "batch": "run.batch_size",
    "seq": "run.sequence_length",
    "sequences": "run.max_num_seqs",
    "context": "run.max_model_len",
}


def agreeing(heatmap: GridCells, cursor: tuple[int, int], process: int | None, edges: Sequence[Edge]) -> Cells:
    """The cells of a map, of which those beside the cursor agree with what is said of its cell.

    What the nearer method has not answered yet stands on the side of the limit that the largest size puts it on, as
    near as its quick figure is; the cursor's own cell has the figure that stands beside the map.

    Args:
        heatmap: the map.
        cursor: column and row of the cell.
        process: its bytes as they stand beside the map; None where they are not known.
        edges: its largest sizes, as far as they are known.
    """
    rows = [list(row) for row in heatmap.cells()]
    asked = heatmap.question
    room, largest = asked.device.total_memory, {edge.key: edge.largest or 0 for edge in edges}

    def agree(x: int, y: int, axis: Axis, at: int) -> None:
        answer, most, amount = rows[y][x], largest.get(SIZE_KEYS.get(axis.name, "")), axis.amounts[at]
        if answer is None or answer.process is None or answer.reason or (x, y) in heatmap.exact_cells:
            return
        if most is not None and isinstance(amount, int):
            process = min(answer.process, room) if amount <= most else max(answer.process, room + 1)
            rows[y][x] = answer._replace(process=process, fits=amount <= most)

    for x in range(len(asked.x.amounts)):
        agree(x, cursor[1], asked.x, x)
    for y in range(len(asked.y.amounts)):
        agree(cursor[0], y, asked.y, y)
    here = rows[cursor[1]][cursor[0]]
    if process is not None and here is not None and not here.reason:
        rows[cursor[1]][cursor[0]] = here._replace(process=process, fits=fits_in(process, room))
    return tuple(tuple(row) for row in rows)
