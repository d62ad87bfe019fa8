"""Whether the source answers, and what is to be said where it does not."""

from collections.abc import Callable

GRACE = 0.1  # seconds: reads take some time, and not always the same


class FeedStatus:
    """What header and banner say of the source.

    Args:
        interval: seconds between reads.
        banner: a sentence shown above everything.
        clock: seconds since the epoch.
        asked: who is to answer.

    Attributes:
        failure: the source's own sentence, or that it has not answered yet; empty once it has.
        failed: why the latest read failed, without what to do about it.
        stuck: the read under way is past its deadline.
        notes: a sentence for each preset file that could not be read.
    """

    __slots__ = ("_answered_at", "_clock", "asked", "banner", "failed", "failure", "interval", "notes", "stuck")

    def __init__(self, interval: float, banner: str, clock: Callable[[], float], asked: str = "the driver") -> None:
        self.interval = interval
        self.banner = banner
        self.asked = asked
        self.failure = ""
        self.failed = ""
        self.stuck = False
        self.notes: tuple[str, ...] = ()
        self._clock = clock
        self._answered_at: float | None = None

    def add_banner(self, words: str) -> None:
        self.banner = " · ".join(filter(None, (self.banner, words)))

    def answer(self) -> None:
        self._answered_at = self._clock()
        self.stuck = False
        self.failure = self.failed = ""

    def begin_again(self, asked: str) -> None:
        """Another host is watched from now on, and is to answer."""
        self.asked = asked
        self._answered_at = None
        self.stuck = False
        self.failure = self.failed = ""

    def stall(self) -> None:
        """The read under way is past its deadline."""
        if self._answered_at is None:
            self.failure = f"waiting for {self.asked} to answer"
        self.stuck = True

    def fail(self, message: str, hint: str) -> None:
        """The source says that it can tell nothing, and why."""
        self.failure = " ".join(filter(None, (message, hint)))
        self.failed = message

    @property
    def late(self) -> float | None:
        """The time, in seconds since the epoch, where an answer should have come by now and has not; else None."""
        now = self._clock()
        if self._answered_at is None or now - self._answered_at < self.interval + GRACE:
            return None
        return now

    @property
    def until_late(self) -> float:
        """Seconds until an answer is late that does not come; 0 where it is, or none has come yet."""
        if self._answered_at is None:
            return 0.0
        return max(0.0, self._answered_at + self.interval + GRACE - self._clock())

    @property
    def age(self) -> float | None:
        """Seconds since the last answer, while there is none; None otherwise."""
        if not (self.stuck or self.failed) or self._answered_at is None:
            return None
        return max(0.0, self._clock() - self._answered_at)
