"""How many connections are opened at once: sshd throws new ones away when there are too many (its MaxStartups)."""

import random
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

AT_ONCE = 4  # for one first hop: sshd's default begins to drop at ten, and others want to log in as well
AT_ONCE_HERE = 16  # in all, so that a start does not take this machine's processor
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0  # seconds
ASK_LIMIT = 5.0


def first_hop(host: str) -> str:
    """The machine that a connection to `host` reaches first, as ssh itself reads its configuration."""
    try:
        asked = subprocess.run(  # noqa: S603 - the name is an argument after `--`
            ["ssh", "-G", "--", host],  # noqa: S607 - the ssh that the person uses
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ASK_LIMIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return host
    fields = dict(
        line.split(" ", 1) for line in asked.stdout.decode(errors="replace").splitlines() if " " in line.strip()
    )
    jump = fields.get("proxyjump", "none").split(",")[0]
    if jump not in ("", "none"):
        return jump
    command = fields.get("proxycommand", "none")
    if command not in ("", "none"):
        return command.replace(host, "%h")
    # Two names may be one machine.
    return f"{fields.get('hostname', host)}:{fields.get('port', '22')}"


class Handshakes:
    """Lets a few begin at once, and the others wait.

    Args:
        hop_of: the first hop of a host.
    """

    def __init__(self, hop_of: Callable[[str], str] = first_hop) -> None:
        self._hop_of = hop_of
        self._here = threading.BoundedSemaphore(AT_ONCE_HERE)
        self._hops: dict[str, threading.BoundedSemaphore] = {}
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """While this host's connection is opened; waits for its turn."""
        with self._gate(host), self._here:
            yield

    def _gate(self, host: str) -> threading.BoundedSemaphore:
        hop = self._known.get(host)
        if hop is None:
            hop = self._known[host] = self._hop_of(host)
        with self._lock:
            return self._hops.setdefault(hop, threading.BoundedSemaphore(AT_ONCE))


class Backoff:
    """Seconds until the next try: twice as many each time, and by chance more or less, so that hosts that fell
    together do not all come back at once.
    """

    def __init__(self, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._next = FIRST_WAIT

    def wait(self) -> float:
        """How long to wait now."""
        now, self._next = self._next, min(LONGEST_WAIT, 2 * self._next)
        return now * (0.5 + self._chance())

    def reset(self) -> None:
        """Start over with the first wait, as the host answers again."""
        self._next = FIRST_WAIT
