"""How much of the job's time the probe may take: what it cannot afford, it leaves out."""

from time import perf_counter_ns

SHARE = 0.002  # of the time that goes by
HEAD_START = 2_000_000  # ns
AFTER = 3  # times as much as a hook takes by itself does it cost the job, whose own code has left the caches


class Allowance:
    """A budget that fills with time: whoever does more than the least pays what it took."""

    def __init__(self) -> None:
        self._began = perf_counter_ns()
        self.spent = 0

    def affords(self) -> bool:
        """Whether there is anything left to spend now."""
        return self.spent < HEAD_START + SHARE * (perf_counter_ns() - self._began)

    def missing(self) -> float:
        """Seconds until it affords anything, if nothing is spent till then."""
        return (((self.spent - HEAD_START) / SHARE) - (perf_counter_ns() - self._began)) / 1e9

    def pay(self, since: int) -> None:
        """The time from `since` (as of perf_counter_ns) until now was ours, and then some of the job's."""
        self.spent += AFTER * (perf_counter_ns() - since)
