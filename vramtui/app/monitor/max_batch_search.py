"""The largest batch that fits a card: searched for a little at a time, so that no key has to wait for it."""

from collections.abc import Callable, Generator
from time import thread_time

MOST_BATCH = 1 << 20
# Seconds of work that a search may take of one turn. An estimate under way is finished, so a turn can take that longer.
BUDGET = 0.01


class MaxBatchSearch:
    """One search, which goes on whenever it is given time.

    Args:
        fits: whether a batch of that size does; costs an estimate.

    Attributes:
        found: the largest batch that fits; 0 when none does, None while the search goes on.
    """

    def __init__(self, fits: Callable[[int], bool]) -> None:
        self.found: int | None = None
        self._steps = _halving(fits)

    def go_on(self, budget: float = BUDGET) -> None:
        """Search for `budget` seconds of work, for one estimate at least: a busy machine makes no turn shorter."""
        over = thread_time() + budget
        while self.found is None:
            try:
                next(self._steps)
            except StopIteration as ended:
                self.found = ended.value
            if thread_time() >= over:
                return


def _halving(fits: Callable[[int], bool]) -> Generator[None, None, int]:
    """Memory only grows with the batch: double until it does not fit, then halve. Stops after every estimate."""
    best, fails = 0, 1
    while fits(fails):
        best, fails = fails, fails * 2
        if fails > MOST_BATCH:
            return best
        yield
    yield
    while fails - best > 1:
        middle = (best + fails) // 2
        if fits(middle):
            best = middle
        else:
            fails = middle
        yield
    return best
