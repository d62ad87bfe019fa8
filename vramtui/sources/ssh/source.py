"""One other host as a source: a thread keeps a connection to it, for ever. The agent goes there as one program, for
`python3 -c` to read from standard input.
"""

import ast
import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError, os_reason
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Problem, Sample
from vramtui.core.observation.source import silence_limit
from vramtui.sources.feed.latest import LatestSample, LineSplitter, LineTooLargeError
from vramtui.sources.feed.pipe import LineDecoder
from vramtui.sources.ssh.far_command import CONNECT_LIMIT, failure_of, ssh_arguments
from vramtui.sources.ssh.handshakes import Backoff, Handshakes
from vramtui.sources.ssh.smi_frames import FarLines

# Each after those that it imports.
MODULES = ("nvml", "counters", "runtime", "containers", "ancestors", "processes", "stream")
_PROGRAM = """\
import sys, types
def vramtui_agent(sources, interval):
    package = sys.modules["vramtui_agent"] = types.ModuleType("vramtui_agent")
    package.__path__ = []
    for name, source in sources:
        module = types.ModuleType("vramtui_agent." + name)
        module.__package__ = "vramtui_agent"
        sys.modules[module.__name__] = module
        exec(compile(source, "<vramtui agent: " + name + ">", "exec"), module.__dict__)
    return sys.modules["vramtui_agent.stream"].main(interval)
"""
PIECE = 1 << 16
START_LIMIT = CONNECT_LIMIT + 20.0  # seconds to the first sample: the connection, and whatever starts there
STEADY = 30.0  # seconds of a connection after which the next failure is a new one
CLOCKS_APART = 10.0  # seconds, beyond what a slow connection explains
MOST_ERROR_BYTES = 4096  # bytes of ssh's own words


@cache
def agent_program(interval: float) -> bytes:
    """Python that runs the agent with a sample each `interval` seconds, and ends the interpreter with its exit code."""
    folder = files("vramtui.agent")
    sources = [(name, without_annotations((folder / f"{name}.py").read_text(encoding="utf-8"))) for name in MODULES]
    return f"{_PROGRAM}sys.exit(vramtui_agent({sources!r}, {interval!r}))\n".encode()


def without_annotations(source: str) -> str:
    """The Python source without the annotations of arguments, results and values, which 3.6 cannot read."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(node, name, None)
            if isinstance(statements, list):
                setattr(node, name, [_plain_statement(one) for one in statements])
    return ast.unparse(ast.fix_missing_locations(tree))


def _plain_statement(statement: ast.stmt) -> ast.stmt:
    if isinstance(statement, ast.AnnAssign):
        if statement.value is None:
            return ast.Pass()
        return ast.Assign([statement.target], statement.value)
    if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
        return ast.Pass()
    return statement


class SshSource:
    """Gives the newest sample of one host. What is older than three intervals is never given for new: the connection
    is then taken for dead, whatever ssh thinks of it, and made anew.

    Args:
        host: as ssh is to be told of it; see `host_names`.
        interval: seconds between samples.
        recording: makes what reads the lines of a recording, one for each connection.
        handshakes: shared by all hosts.
        arguments: the command that reaches the host, where that is not ssh.
    """

    name = "ssh"

    def __init__(
        self,
        host: str,
        interval: float,
        recording: Callable[[], LineDecoder],
        handshakes: Handshakes,
        arguments: Callable[[str, float, int], Sequence[str]] = ssh_arguments,
    ) -> None:
        self._arguments = arguments
        self.host = host
        self._interval = interval
        self._recording = recording
        self._handshakes = handshakes
        self._latest = LatestSample(host)
        self._backoff = Backoff()
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_connected, name=f"ssh {host}", daemon=True)
        self._thread.start()

    @property
    def age(self) -> float | None:
        """Seconds since the latest sample came, by this machine's clock; None where none has."""
        return self._latest.age

    def read(self) -> Sample:
        """The newest sample that was not given yet, for which it waits.

        Raises:
            SourceFailed: there is no connection, or it is silent for three intervals.
        """
        return self._latest.next(silence_limit(self._interval) + 1.0, START_LIMIT + 1.0)

    def close(self) -> None:
        self._ending.set()
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()

    def _deliver(self, sample: Sample) -> None:
        ahead = sample.taken_at - time.time()
        if abs(ahead) > CLOCKS_APART:
            message = (
                f"Its clock is {format_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} this machine's."
            )
            problem = Problem(where=self.host, message=message, hint="Times are its own; ages are by this machine.")
            sample = msgspec.structs.replace(sample, problems=(*sample.problems, problem))
        self._latest.deliver(sample)

    def _keep_connected(self) -> None:
        while not self._ending.is_set():
            begun = time.monotonic()
            failure = self._connection()
            if time.monotonic() - begun > STEADY:
                self._backoff.reset()
            self._latest.fail(failure)
            self._ending.wait(self._backoff.wait())

    def _connection(self) -> SourceFailed:
        """One connection from its beginning to its end; why it ended."""
        opening = contextlib.ExitStack()
        try:
            opening.enter_context(self._handshakes.turn(self.host))
            program = agent_program(self._interval)
            process = self._process = subprocess.Popen(  # noqa: S603 - a list, no shell of this machine
                list(self._arguments(self.host, self._interval, len(program))),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,  # no terminal to ask on, and Ctrl-C is not for it
            )
        except OSError as error:
            opening.close()
            return SourceFailed(f"ssh cannot be started: {os_reason(error)}.")
        try:
            return _Conversation(self.host, process, FarLines(self._recording), self._interval).go(
                program, self._deliver, opening.close
            )
        finally:
            opening.close()
            _end(process)


class _Conversation:
    """Reads what comes until it ends or falls silent."""

    def __init__(self, host: str, process: subprocess.Popen[bytes], lines: FarLines, interval: float) -> None:
        self._host = host
        self._process = process
        self._lines = lines
        self._limit = silence_limit(interval)
        self._splitter = LineSplitter()
        self._errors = b""
        assert process.stdout is not None
        assert process.stderr is not None
        self._out, self._err = process.stdout.fileno(), process.stderr.fileno()
        self._poll = select.poll()  # `select` knows no descriptor beyond 1023
        self._poll.register(self._out, select.POLLIN)
        self._poll.register(self._err, select.POLLIN)

    def go(self, program: bytes, deliver: Callable[[Sample], None], opened: Callable[[], None]) -> SourceFailed:
        """Hand on sample after sample; why there are no more.

        Args:
            program: for the far end's standard input, which then stays open.
            deliver: takes each sample.
            opened: is called when the far end speaks for the first time.
        """
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # why it does not take it is told by what ssh says
            process.stdin.write(program)  # smaller than a pipe, so it never waits
        began = last = time.monotonic()
        has_come = False
        while True:
            piece = self._next_piece(last + (self._limit if has_come else START_LIMIT))
            if piece is None:
                waited = time.monotonic() - (last if has_come else began)
                return SourceFailed(f"{self._host} does not answer: no sample for {waited:.0f} s; connecting again.")
            if not piece:
                return self._ended()
            opened()
            try:
                sample = self._take(piece)
            except (UserError, LineTooLargeError) as error:
                return SourceFailed(f"{self._host}: {str(error) or 'a line does not end'}.")
            if sample is not None:
                last, has_come = time.monotonic(), True
                deliver(sample)

    def _next_piece(self, until: float) -> bytes | None:
        """What comes next on standard output; nothing at its end, None where nothing comes in time."""
        while (left := until - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in self._poll.poll(left * 1000)}
            if self._err in ready:
                piece = os.read(self._err, PIECE)
                self._errors = (self._errors + piece)[-MOST_ERROR_BYTES:]
                if not piece:
                    self._poll.unregister(self._err)
            if self._out in ready:
                return os.read(self._out, PIECE)
        return None

    def _take(self, piece: bytes) -> Sample | None:
        newest = None
        for line in self._splitter.add(piece):
            newest = self._lines.take(line) or newest
        return newest

    def _ended(self) -> SourceFailed:
        """Standard output is closed: what ssh has to say comes within a moment."""
        try:
            code: int | None = self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            code = None
        with contextlib.suppress(KeyError):
            self._poll.unregister(self._out)
        while self._poll.poll(0) and (piece := os.read(self._err, PIECE)):
            self._errors = (self._errors + piece)[-MOST_ERROR_BYTES:]
        return failure_of(self._host, self._errors.decode(errors="replace"), code)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill it where it lives; what waits in a driver or in a network is not waited for."""
    with contextlib.suppress(OSError):
        process.kill()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)
