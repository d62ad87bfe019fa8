"""A map that fills cell by cell, and advice about one of its cells; the two always agree."""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from vramtui.app.plan.axes import Axis, variant
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import COMPARED, Device
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import fits_in
from vramtui.core.schema.workload import ServeRun, Workload
from vramtui.estimators.planner.card_table import CardFit, answer_for, card_fits, spread
from vramtui.estimators.planner.planner import (
    NEAR,
    Correction,
    Edge,
    Effect,
    FitResult,
    Planner,
    other_keys,
    usual_key,
    with_values,
)

Steps = Callable[[Estimator], Iterator[None]]
Cells = tuple[tuple[FitResult | None, ...], ...]
# The keys of the axes whose largest size is searched.
SIZE_KEYS = {
    "batch": "run.batch_size",
    "seq": "run.sequence_length",
    "sequences": "run.max_num_seqs",
    "context": "run.max_model_len",
}


class GridQuestion(msgspec.Struct, frozen=True):
    """The subject of a map: `workload` on `device` over two axes. A job on one GPU is sharded over `cards`."""

    workload: Workload
    device: Device
    x: Axis
    y: Axis
    cards: int


class GridCells:
    """The answers so far, from the cell `start` on. One thread fills it while another reads `cells`.

    Once all cells are answered, `exact` simulates those that may fit. The others are scaled as it changed these, so
    that the map has no cliff between the two methods.
    """

    __slots__ = (
        "_exact", "_move", "_moves", "_rows", "_tried", "done", "exact_cells", "is_exact", "question", "start", "total",
    )  # fmt: skip

    def __init__(self, question: GridQuestion, start: tuple[int, int], exact: Estimator | None = None) -> None:
        self.question, self.start = question, start
        self.done, self.total = 0, len(question.x.amounts) * len(question.y.amounts)
        self.is_exact = exact is None
        self._exact = exact
        self._tried: set[tuple[int, int]] = set()
        self.exact_cells: set[tuple[int, int]] = set()
        # By row, the column of the rightmost exact answer and its correction; the first correction of all.
        self._moves: dict[int, tuple[int, Correction]] = {}
        self._move: Correction | None = None
        self._rows: list[list[FitResult | None]] = [[None] * len(question.x.amounts) for _ in question.y.amounts]

    @property
    def is_whole(self) -> bool:
        """Return whether every cell has its final answer."""
        return self.done >= self.total and self.is_exact

    def cells(self) -> Cells:
        """A row for each value of y; None for an unknown answer."""
        room, usual = self.question.device.total_memory, self._move

        def moved(answer: FitResult | None, x: int, y: int) -> FitResult | None:
            """The answer with the correction of its row, or of the start."""
            if answer is None or answer.process is None or (x, y) in self.exact_cells or usual is None:
                return answer
            process = self._moves.get(y, (0, usual))[1].moved(answer.process)
            refused = bool(answer.reason) and not answer.fits
            return answer._replace(process=process, fits=not refused and fits_in(process, room))

        if usual is None:
            return tuple(tuple(row) for row in self._rows)
        return tuple(tuple(moved(answer, x, y) for x, answer in enumerate(row)) for y, row in enumerate(self._rows))

    def workload_at(self, x: int, y: int) -> Workload:
        """The variant of a cell.

        Raises:
            UserError: it is not possible.
        """
        asked = self.question
        amounts = {asked.x.name: asked.x.amounts[x], asked.y.name: asked.y.amounts[y]}
        return variant(asked.workload, amounts, asked.cards)

    def fill(self, estimator: Estimator) -> Iterator[None]:
        """Answer one cell per step. Then simulate both sides of the limit in each row, then all else that may fit."""
        exact, columns, rows = self._exact, len(self.question.x.amounts), len(self.question.y.amounts)
        for x, y in spread(columns, rows, self.start):
            if self._rows[y][x] is None:
                self._rows[y][x] = self._answer(x, y, estimator)
                self.done += 1
                yield
            if (x, y) == self.start and exact is not None:
                yield from self._refine(x, y, exact)
        if exact is None or self.is_exact:
            return

        def next_at_limit(y: int) -> int | None:
            """The first cell of a row not tried yet that fits where its neighbour does not, or the reverse."""
            known = [None if one is None or one.process is None else one.fits for one in self.cells()[y]]
            return next(
                (
                    x
                    for x in range(columns)
                    if (x, y) not in self._tried
                    and {True, False} <= {known[x], *(known[at] for at in (x - 1, x + 1) if 0 <= at < columns)}
                    and known[x] is not None
                ),
                None,
            )

        for y in range(rows):
            while (column := next_at_limit(y)) is not None:
                yield from self._refine(column, y, exact)
        for x, y in spread(columns, rows, self.start):
            yield from self._refine(x, y, exact)
        self.is_exact = True

    def _refine(self, x: int, y: int, exact: Estimator) -> Iterator[None]:
        """Make one answer exact if it may fit."""
        if (x, y) in self._tried:
            return
        self._tried.add((x, y))
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
            return answer_for(estimator, self.workload_at(x, y), self.question.device)
        except UserError as error:
            return FitResult(None, fits=False, reason=str(error))


class CardAnswers:
    """One job on every card, as far as it is known. One thread fills `fits` while another reads it."""

    __slots__ = ("_cards", "_exact", "fits", "workload")

    def __init__(self, workload: Workload, cards: Sequence[Device], exact: Estimator | None = None) -> None:
        self.workload = workload
        self.fits: dict[Device, CardFit] = {}
        self._cards, self._exact = cards, exact

    @property
    def is_whole(self) -> bool:
        return len(self.fits) == len(set(self._cards))

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Answer one card per step."""
        missing = [card for card in self._cards if card not in self.fits]
        for answer in card_fits(estimator, self.workload, missing, self._exact):
            self.fits[answer.card] = answer
            yield


class Holds(msgspec.Struct, frozen=True):
    """A card that holds the process, and the bytes of the process there."""

    card: Device
    process: int


class Advice:
    """Advice about one variant on one of `gpus` cards; None is unknown.

    Attributes:
        edges: the largest of each size that fits.
        mitigations: names and costs of the cheapest changes that make it fit; empty if no changes are enough.
        with_them: bytes of the process after those changes.
        cards: the cards that hold it, smallest first.
        effects: the effect of each single change.
    """

    __slots__ = (
        "_exact", "_gpus", "cards", "device", "edges", "effects", "fits", "is_whole", "mitigations", "with_them",
        "workload",
    )  # fmt: skip

    def __init__(self, workload: Workload, device: Device, gpus: int, exact: Estimator | None = None) -> None:
        self.workload, self.device = workload, device
        self._gpus, self._exact = gpus, exact
        self.edges: tuple[Edge, ...] = ()
        self.fits: bool | None = None
        self.mitigations: tuple[tuple[str, str], ...] | None = None
        self.with_them: int | None = None
        self.cards: tuple[Holds, ...] = ()
        self.effects: tuple[Effect, ...] = ()
        self.is_whole = False

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Find one thing per step; if the last search was left early, start again."""
        self.edges, self.cards, self.effects = (), (), ()
        planner = Planner(estimator, self.workload, self.device, self._gpus, self._exact)
        nearest = self._exact or estimator
        now = answer_for(nearest, self.workload, self.device)
        self.fits = now.fits
        yield
        first = usual_key(self.workload)
        for key in (first, *(other for other in other_keys(self.workload) if other != first)):
            self.edges = (*self.edges, planner.edge(key))
            yield
        # A server takes its share of the card: a change frees room for more tokens.
        for effect in planner.effects(now.process or 0, first if isinstance(self.workload.run, ServeRun) else None):
            self.effects = (*self.effects, effect)
            yield
        by_size = sorted(COMPARED, key=lambda card: (card.total_memory, card.name))
        for card in by_size:
            there = answer_for(nearest, self.workload, card)
            if there.fits and there.process is not None:
                self.cards = (*self.cards, Holds(card, there.process))
            yield
        if not self.fits:
            mitigations = planner.cheapest() or ()
            if mitigations:
                changes = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
                self.with_them = answer_for(nearest, with_values(self.workload, changes), self.device).process
            self.mitigations = tuple((mitigation.name, mitigation.cost) for mitigation in mitigations)
            yield
        self.is_whole = True


def agreeing(heatmap: GridCells, cursor: tuple[int, int], process: int | None, edges: Sequence[Edge]) -> Cells:
    """The cells of a map; those in the cursor's row and column agree with the sentences about its cell.

    A quick answer is moved to the side of the limit that the largest size (of `edges`) puts it on, as little as
    possible. The cursor's own cell shows `process`, the bytes next to the map.
    """
    rows = [list(row) for row in heatmap.cells()]
    asked = heatmap.question
    room, largest = asked.device.total_memory, {edge.key: edge.largest or 0 for edge in edges}
    at_x, at_y = cursor
    across = [(x, at_y, asked.x.name, amount) for x, amount in enumerate(asked.x.amounts)]
    down = [(at_x, y, asked.y.name, amount) for y, amount in enumerate(asked.y.amounts)]
    for x, y, name, amount in (*across, *down):
        answer, most = rows[y][x], largest.get(SIZE_KEYS.get(name, ""))
        if answer is None or answer.process is None or answer.reason or (x, y) in heatmap.exact_cells:
            continue
        if most is not None and isinstance(amount, int):
            fits = amount <= most
            near = min(answer.process, room) if fits else max(answer.process, room + 1)
            rows[y][x] = answer._replace(process=near, fits=fits)
    here = rows[at_y][at_x]
    if process is not None and here is not None and not here.reason:
        rows[at_y][at_x] = here._replace(process=process, fits=fits_in(process, room))
    return tuple(tuple(row) for row in rows)
