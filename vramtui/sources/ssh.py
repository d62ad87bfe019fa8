"""Other hosts over ssh: their names, the program at the far end, its lines, and one source per host.

The hosts of a running Slurm job are reached by a step of the job itself, or over ssh. The far end runs a vramtui that
is installed there, or the agent (one Python program on standard input), or a loop of nvidia-smi and ps.
"""

import ast
import calendar
import contextlib
import itertools
import math
import os
import random
import re
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec.structs import replace

from vramtui.agent.stream import BROKEN, NO_NVML
from vramtui.core.base.errors import SourceFailed, UserError, nearest, os_reason
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Absence, Host, Problem, Process, Sample, silence_limit
from vramtui.sources.feed import LatestSample, LineDecoder, LineSplitter, LineTooLargeError
from vramtui.sources.nvidia_smi import FORMAT, NvidiaSmiSource, Output

# Names of hosts as people write them: `gpu01`, `user@gpu[02-16]`, `@group`.
LONGEST_SHOWN = 200  # characters; a host's name has 253 at most, and most have twenty
MOST_HOSTS = 1024
_NAME = re.compile(r"(?:[A-Za-z0-9._][A-Za-z0-9._+-]*@)?[A-Za-z0-9_.:][A-Za-z0-9_.:%-]*")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_BETWEEN = re.compile(r",(?![^\[]*\])")  # a comma outside of brackets


def host_names(asked: Iterable[str], groups: Mapping[str, Sequence[str]] | None = None) -> tuple[str, ...]:
    """Return every host once and in order, as ssh takes it, of names, ranges as Slurm writes them, and `@group`. Raises
    UserError for an impossible name, an unknown group, or too many hosts.
    """
    known = {} if groups is None else groups
    names: dict[str, None] = {}
    for text in asked:
        for part in _BETWEEN.split(text):
            members: Iterable[str] = (part.strip(),)
            if part.strip().startswith("@"):
                group = part.strip()[1:]
                if group not in known:
                    raise UserError(
                        f"there is no group of hosts called {_short_text(group)}{nearest(group, known)}; "
                        f"groups are in the table [hosts] of the settings: {_short_text(group)} = ['gpu[01-08]']"
                    )
                members = itertools.chain.from_iterable(map(_BETWEEN.split, known[group]))
            for name in itertools.chain.from_iterable(_expand(member.strip()) for member in members):
                if not _NAME.fullmatch(name):  # one that begins with `-` would be an option of ssh's
                    shown = _short_text(name) or "nothing"
                    raise UserError(f"--host {_short_text(text)}: {shown} is not a host name")
                names[name] = None
                if len(names) > MOST_HOSTS:
                    raise UserError(f"--host {_short_text(text)}: more than {MOST_HOSTS} hosts")
    return tuple(names)


def _expand(text: str) -> Iterable[str]:
    """`r[1-2]n[01,03]` is r1n01, r1n03, r2n01, r2n03; zeros at the front are kept."""
    asked = f"--host {_short_text(text)}"
    choices = []
    for at, piece in enumerate(_BRACKETS.split(text)):
        numbers = [] if at % 2 else [piece]
        for part in piece.split(",") if at % 2 else ():
            matched = _RANGE.fullmatch(part.strip())
            if matched is None:
                raise UserError(f"{asked}: [{_short_text(piece)}] is not a range; write gpu[01-08] or gpu[1,4]")
            first, last = matched[1], matched[2] or matched[1]
            if int(last) < int(first) or int(last) - int(first) >= MOST_HOSTS:
                raise UserError(f"{asked}: {_short_text(part)} is not a range of at most {MOST_HOSTS} hosts")
            numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
        choices.append(numbers)
    if math.prod(map(len, choices)) > MOST_HOSTS:
        raise UserError(f"{asked}: more than {MOST_HOSTS} hosts")
    return ("".join(parts) for parts in itertools.product(*choices))


def _short_text(text: str) -> str:
    return printable(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


# The command at the far end, and the reasons why it may fail.
CONNECT_LIMIT = 10  # seconds
# In BatchMode it fails if it would have to ask.
OPTIONS = (
    "-T", "-oBatchMode=yes", f"-oConnectTimeout={CONNECT_LIMIT}", "-oServerAliveInterval=5", "-oServerAliveCountMax=3",
    "-oClearAllForwardings=yes", "-oPermitLocalCommand=no", "-oRequestTTY=no",
)  # fmt: skip
# Programs that may run the agent: on RHEL 8 python3 may be missing, and its own system tools have one.
PYTHONS = ("python3", *(f"python3.{minor}" for minor in range(13, 8, -1)), "/usr/libexec/platform-python")
OLDEST = "(3,6)"
# Why nvidia-smi is read: exit codes of the agent's Python, and of the shell and of Python itself for one that does not
# start (a shim of pyenv's, or one so old that it does not know -I). After these the next one is tried: the agent
# still waits on standard input, which any other has read.
NO_PYTHON, TOO_OLD = 0, 9
NOT_STARTED = (2, 126, 127)
SMI_MARK = "vramtui-smi 1"
GPU_COLUMNS = (
    "index,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.free,memory.reserved,utilization.gpu,"
    "utilization.memory,power.draw,enforced.power.limit,temperature.gpu,clocks.sm,clocks.mem,fan.speed,"
    "pcie.link.gen.current,pcie.link.width.current,ecc.errors.uncorrected.volatile.total,"
    "clocks_throttle_reasons.active,compute_cap,mig.mode.current,name"
)
OLD_COLUMNS = "index,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.free,utilization.gpu,name"


def ssh_arguments(host: str, interval: float, agent_size: int) -> Sequence[str]:
    """The whole command for one host. Its name is an argument of its own after `--`, never part of a shell's text."""
    return ("ssh", *OPTIONS, "--", host, far_command(interval, agent_size))


def far_command(interval: float, agent_size: int) -> str:
    """The command for the far host's login shell, whichever that is: one word in single quotes for `sh`.

    First a vramtui that is installed there; then the agent, of `agent_size` bytes on standard input, by the first
    Python that can run it; then nvidia-smi and ps in one loop that runs as long as its output is read, whose first line
    says why. Each ends with the connection.
    """
    seconds = f"{interval:g}"
    program = f"import sys;sys.version_info<{OLDEST}and sys.exit({TOO_OLD});exec(sys.stdin.buffer.read({agent_size}))"
    steps = (
        'PATH="$PATH:$HOME/.local/bin"',
        f"vramtui record - --interval {seconds} </dev/null 2>/dev/null && exit 0",
        f'w="{NO_PYTHON}"; for p in {" ".join(PYTHONS)}',
        "do command -v $p >/dev/null || continue",
        f'$p -I -S -c "{program}" 2>/dev/null && exit 0; w=$?',
        f"case $w in {'|'.join(map(str, (*NOT_STARTED, TOO_OLD)))}) ;; *) break;; esac; done",
        "command -v nvidia-smi >/dev/null || { echo vramtui: no GPU can be read here >&2; exit 3; }",
        f"q={GPU_COLUMNS}",
        f"nvidia-smi --query-gpu=$q {FORMAT} >/dev/null 2>&1 || q={OLD_COLUMNS}",
        f'echo "{SMI_MARK} $w"',
        f"while echo @ $q && uname -n; do nvidia-smi --query-gpu=$q {FORMAT} 2>&1; echo @apps $?",
        f"a=$(nvidia-smi --query-compute-apps=pid,gpu_uuid,used_memory,process_name {FORMAT} 2>&1)",
        'echo "$a"; echo @ps',
        'p=$(echo "$a" | cut -d, -f1 | grep -x "[0-9]*" | paste -s -d, -)',
        '[ -z "$p" ] || LC_ALL=C TZ=UTC0 ps -ww -o pid=,user=,lstart=,args= -p "$p"',
        f"echo @end; sleep {seconds}; done",
    )
    return f"exec sh -c '{'; '.join(steps)}'"


TOO_MANY = "too many at once"
_KNOWN = (  # a part of ssh's words, the problem, and what to do
    ("permission denied", "cannot log in without a password",
     "Load a key (`ssh-add`), or open a connection that is shared (ControlPath): `ssh -fNM {host}`."),
    ("remote host identification has changed", "its key has changed: another machine may answer in its name",
     "Ask its administrator; only if it was set up again: `ssh-keygen -R {host}`."),
    ("host key verification failed", "its key is not known here yet",
     "Connect once by hand, `ssh {host}`, and compare the key that it shows."),
    ("kex_exchange_identification", f"the server drops new connections: {TOO_MANY}",
     "Its MaxStartups says how many it takes."),
    ("could not resolve hostname", "cannot resolve host name", "Is the name right? See also ~/.ssh/config."),
    ("connection refused", "it refuses connections", "Does sshd run there?"),
    ("connection timed out", "it does not answer", ""),
    ("no route to host", "no route to host", ""),
    ("no gpu can be read here", "no GPU can be read there", "Run `vramtui doctor` or `nvidia-smi` on it."),
)  # fmt: skip
SHOWN = 200  # characters of ssh's output
NO_SHELL = 127


def failure_of(host: str, errors: str, code: int | None) -> SourceFailed:
    """Explain why the connection to `host` ended, by ssh's standard error and exit status (None if ended from here)."""
    lower = errors.lower()
    for mark, sentence, hint in _KNOWN:
        if mark in lower:
            return SourceFailed(f"{host}: {sentence}.", hint.format(host=host))
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "")
    if last:
        return SourceFailed(f"{host}: {printable(last.strip()[:SHOWN]).rstrip('.')}.")
    if code == NO_SHELL:
        return SourceFailed(f"{host}: there is no shell to run anything in.")
    return SourceFailed(f"{host}: the connection has ended" + (f" (status {code})." if code else "."))


# The lines that come back.
MOST_GREETING = 200  # lines that a login shell may print before anything else
MOST_LINES = 1 << 17  # of one frame
_MARK = re.compile(SMI_MARK.encode() + rb" (\d{1,3})")
_PS = re.compile(rb"\s*(\d+)\s+(\S+)\s+\w{3}\s+(\w{3}\s+\d+\s+[\d:]{8}\s+\d{4})\s?(.*)")
_REASONS = {
    NO_PYTHON: "neither vramtui nor a Python",
    TOO_OLD: "no vramtui, and its Python is older than 3.6",
    **dict.fromkeys(NOT_STARTED, "no vramtui, and no Python that starts"),
    BROKEN: "no vramtui, and its Python fails in the agent",
    NO_NVML: "no vramtui, and its Python cannot load NVML's library",
}


class FarLines:
    """Passes over the greeting of a login shell, and recognises the program by its first line.

    Attributes:
        decoder: the decoder of the lines; None until the first line of a program.
    """

    def __init__(self, recording: Callable[[], LineDecoder]) -> None:
        self._recording = recording
        self._greeting = 0
        self.decoder: LineDecoder | None = None

    def take(self, line: bytes) -> Sample | None:
        """Return the sample that the next line holds, if any; raises UserError if no program prints that line."""
        if self.decoder is not None:
            return self.decoder.take(line)
        if line.startswith(b'{"vramtui_recording":'):
            self.decoder = self._recording()
            return self.decoder.take(line)
        mark = _MARK.fullmatch(line.strip())
        if mark is not None:
            self.decoder = SmiFrames(why=int(mark[1]))
            return None
        self._greeting += 1
        if self._greeting > MOST_GREETING:
            raise UserError("its output is not a recording")
        return None


class SmiFrames:
    """Puts the lines of nvidia-smi and ps together to samples; a frame ends with `@end`. The time is this machine's, as
    the loop prints none; `why` is the exit code of the Python that would have run the agent.
    """

    interval = None

    def __init__(self, clock: Callable[[], float] = time.time, *, why: int = NO_PYTHON) -> None:
        self._parts: dict[str, list[bytes]] = {}
        self._part = ""
        self._count = 0
        self._columns: tuple[str, ...] = ()
        self._code = 0
        reason = _REASONS.get(why, f"no vramtui, and its Python ended with {why}")
        fallen_back = Problem(
            where="nvidia-smi",
            message=f"The host has {reason}, so nvidia-smi is read in a loop.",
            hint="Graphics clients, MIG instances and peaks between samples are not seen.",
        )
        self._source = NvidiaSmiSource(self._answer, host=self._read_host, clock=clock, because=fallen_back)

    def take(self, line: bytes) -> Sample | None:
        """Return the sample that ends with this line, if one does. Raises UserError if nvidia-smi prints nothing
        usable, or does not stop.
        """
        self._count += 1
        if line.startswith(b"@ "):
            self._columns = tuple(line[2:].decode(errors="replace").strip().split(","))
            self._parts, self._part, self._count = {}, "gpus", 0
        elif line.startswith(b"@apps "):
            status = line[6:].strip()
            if not re.fullmatch(rb"\d{1,3}", status):
                shown = printable(status[:20].decode(errors="replace"))
                raise UserError(f"nvidia-smi's exit status cannot be read: {shown}")
            self._part, self._code = "apps", int(status)
        elif line == b"@ps":
            self._part = "ps"
        elif line == b"@end":
            try:
                sample = self._source.read()
            except SourceFailed as failure:
                raise UserError(failure.message) from None
            except (LookupError, ValueError) as error:
                raise UserError(f"nvidia-smi's answer cannot be read: {printable(str(error))}") from None
            gpus = tuple(replace(gpu, processes=self._introduced(gpu.processes)) for gpu in sample.gpus)
            return replace(sample, gpus=gpus)
        elif self._count > MOST_LINES:
            raise UserError("nvidia-smi does not stop")
        else:
            self._parts.setdefault(self._part, []).append(line)
        return None

    def _answer(self, command: Sequence[str], _: float) -> Output:
        """Answer from the lines of this frame, instead of running the program."""
        if command[1].startswith("--query-compute-apps="):
            return Output(b"\n".join(self._parts.get("apps", [])).decode(errors="replace"), 0)
        if not command[1].startswith("--query-gpu="):
            return Output("", 1)
        asked = command[1].removeprefix("--query-gpu=").split(",")
        missing = next((name for name in asked if name not in self._columns), None)
        if missing is not None:
            # As a version that does not know a field; the source then does without it.
            return Output(f'Field "{missing}" is not a valid field to query.', 2)
        lines = []
        for line in b"\n".join(self._parts.get("gpus", [])[1:]).decode(errors="replace").splitlines():
            cells = line.split(", ", len(self._columns) - 1)
            if len(cells) == len(self._columns):
                by_name = dict(zip(self._columns, cells, strict=True))
                lines.append(", ".join(by_name[name] for name in asked))
            else:
                lines.append(line)  # the source knows what to do with it
        return Output("\n".join(lines), self._code)

    def _read_host(self, driver: str | None, cuda: str | None) -> Host:
        lines = self._parts.get("gpus", [])
        name = printable(lines[0].decode(errors="replace")) if lines else ""
        return Host(name=name or "?", driver_version=driver, cuda_version=cuda)

    def _introduced(self, rows: Iterable[Process]) -> tuple[Process, ...]:
        """Add what ps prints of the processes."""
        known: dict[int, dict[str, Any]] = {}
        for line in self._parts.get("ps", []):
            matched = _PS.match(line)
            if matched is None:
                continue
            pid, user, started, command = matched.groups()
            with contextlib.suppress(ValueError):
                at = calendar.timegm(time.strptime(b" ".join(started.split()).decode(), "%b %d %H:%M:%S %Y"))
                known[int(pid)] = {
                    "user": printable(user.decode(errors="replace")),
                    "command": printable(command.decode(errors="replace")),
                    "started_at": float(at),
                    "state": "zombie" if command.endswith(b"<defunct>") else "running",
                }
        unseen = dict.fromkeys(("user", "command", "started_at"), Absence.NO_ANSWER)
        return tuple(replace(row, **(known.get(row.pid) or {"absent": {**row.absent, **unseen}})) for row in rows)


# How many connections are opened at once: sshd throws new ones away when there are too many (its MaxStartups).
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
    return f"{fields.get('hostname', host)}:{fields.get('port', '22')}"  # two names may be one machine


class Handshakes:
    """Lets a few connections begin at once, and the others wait; `hop_of` gives the first hop of a host."""

    def __init__(self, hop_of: Callable[[str], str] = first_hop) -> None:
        self._hop_of = hop_of
        self._here = threading.BoundedSemaphore(AT_ONCE_HERE)
        self._hops: dict[str, threading.BoundedSemaphore] = {}
        self._known: dict[str, str] = {}
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, host: str) -> Iterator[None]:
        """Wait for this host's turn, and hold it while the connection is opened."""
        hop = self._known.get(host)
        if hop is None:
            hop = self._known[host] = self._hop_of(host)
        with self._lock:
            gate = self._hops.setdefault(hop, threading.BoundedSemaphore(AT_ONCE))
        with gate, self._here:
            yield


def backoff(chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Yield the seconds until each further try: twice as many each time, and by chance more or less, so that hosts that
    fell together do not all come back at once.
    """
    wait = FIRST_WAIT
    while True:
        yield wait * (0.5 + chance())
        wait = min(LONGEST_WAIT, 2 * wait)


MODULES = ("nvml", "counters", "ancestors", "containers", "runtime", "processes", "stream")  # each after its imports
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
START_LIMIT = CONNECT_LIMIT + 20.0  # seconds to the first sample: the connection, and the start of the program there
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
    """The Python source without annotations and the names imported for them, which 3.6 cannot read."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
        for name in ("body", "orelse", "finalbody"):
            statements: Any = getattr(node, name, None)
            for at, one in enumerate(statements if isinstance(statements, list) else ()):
                if isinstance(one, ast.AnnAssign):
                    statements[at] = ast.Pass() if one.value is None else ast.Assign([one.target], one.value)
                elif isinstance(one, ast.ImportFrom) and one.module in {"__future__", "typing"}:
                    statements[at] = ast.Pass()
    return ast.unparse(ast.fix_missing_locations(tree))


class SshSource:
    """Gives the newest sample of one host; a thread keeps a connection to it. After three intervals without a sample
    the connection is taken for dead, even if ssh holds it, and made again.

    Args:
        host: as ssh takes it; see `host_names`.
        interval: seconds between samples.
        recording: makes the decoder of a recording's lines, one for each connection.
        handshakes: shared by all hosts.
        arguments: the command that reaches the host, if that is not ssh.
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
        self._waits = backoff()
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep_connected, name=f"ssh {host}", daemon=True)
        self._thread.start()

    def read(self) -> Sample:
        """Wait for the newest sample that was not given yet. Raises SourceFailed without a connection, or if it is
        silent for three intervals.
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
            sample = replace(sample, problems=(*sample.problems, problem))
        self._latest.deliver(sample)

    def _keep_connected(self) -> None:
        while not self._ending.is_set():
            begun = time.monotonic()
            failure = self._connection()
            if time.monotonic() - begun > STEADY:
                self._waits = backoff()  # the host answered
            self._latest.fail(failure)
            self._ending.wait(next(self._waits))

    def _connection(self) -> SourceFailed:
        """Keep one connection from its beginning to its end; return why it ended."""
        with contextlib.ExitStack() as opening:
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
                return SourceFailed(f"ssh cannot be started: {os_reason(error)}.")
            try:
                return self._converse(process, opening.close)
            finally:
                # What waits in a driver or in a network is not waited for.
                with contextlib.suppress(OSError):
                    process.kill()
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe is not None:
                        with contextlib.suppress(OSError):
                            pipe.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)

    def _converse(self, process: "subprocess.Popen[bytes]", opened: Callable[[], None]) -> SourceFailed:
        """Send the program, deliver its samples, and return why they end; `opened` is called once the far end sends
        something.
        """
        lines, splitter, errors = FarLines(self._recording), LineSplitter(), b""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, err = process.stdout.fileno(), process.stderr.fileno()
        poll = select.poll()  # `select` knows no descriptor beyond 1023
        poll.register(out, select.POLLIN)
        poll.register(err, select.POLLIN)
        with contextlib.suppress(OSError):  # ssh's own words say why it does not take it
            process.stdin.write(agent_program(self._interval))  # smaller than a pipe, so it never waits
        last, limit = time.monotonic(), START_LIMIT
        while (left := last + limit - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in poll.poll(left * 1000)}
            if err in ready:
                piece = os.read(err, PIECE)
                errors = (errors + piece)[-MOST_ERROR_BYTES:]
                if not piece:
                    poll.unregister(err)
            if out not in ready:
                continue
            piece = os.read(out, PIECE)
            if not piece:
                # Standard output is closed: ssh's own words come within a moment.
                code: int | None = None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    code = process.wait(2.0)
                with contextlib.suppress(KeyError):
                    poll.unregister(out)
                while poll.poll(0) and (piece := os.read(err, PIECE)):
                    errors = (errors + piece)[-MOST_ERROR_BYTES:]
                return failure_of(self.host, errors.decode(errors="replace"), code)
            opened()
            sample = None
            try:
                for line in splitter.add(piece):
                    sample = lines.take(line) or sample
            except (UserError, LineTooLargeError) as error:
                return SourceFailed(f"{self.host}: {str(error) or 'a line does not end'}.")
            if sample is not None:
                last, limit = time.monotonic(), silence_limit(self._interval)
                self._deliver(sample)
        waited = time.monotonic() - last
        return SourceFailed(f"{self.host} does not answer: no sample for {waited:.0f} s; connecting again.")


LIMIT = 30.0  # seconds for a command of Slurm's, whose controller may be busy
_JOB = re.compile(r"\d{1,12}(?:_\d{1,9})?(?:\+\d{1,9})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def run_slurm(*arguments: str) -> str:
    """Run one of Slurm's commands; return its output. Raises UserError if it is not installed, fails (in its own words)
    or takes too long.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - a list, no shell
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise UserError(f"{arguments[0]} not found; run this where Slurm's commands are installed") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{arguments[0]} has not answered for {LIMIT:g} s; is slurmctld up?") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise UserError(f"{arguments[0]}: {printable(errors[0][:200]) if errors else f'status {ended.returncode}'}")
    return ended.stdout.decode(errors="replace")


def job_hosts(job: str) -> tuple[dict[str, str], str]:
    """Return the hosts of a job, each with the id to start a step under, and the job's user. Raises UserError if it is
    not a job's id, or the job does not run.
    """
    if _JOB.fullmatch(job) is None:
        raise UserError(f"--slurm takes a job's id, as 4711 or 4711_3; not {printable(job)!r}")
    # squeue(1): %A is the own id of a task of an array, %T the state, %u the user, %N the nodes.
    output = run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%A|%T|%u|%N")
    rows = [row for line in output.splitlines() if len(row := line.split("|", 3)) == 4]
    hosts: dict[str, str] = {}
    user = ""
    for number, state, owner, nodes in rows:
        user = owner
        if state.startswith(("RUNNING", "COMPLETING", "SUSPENDED")) and nodes.strip():
            for node in run_slurm("scontrol", "show", "hostnames", nodes.strip()).split():
                if _NODE.fullmatch(node):
                    hosts.setdefault(node, number)
    if not hosts:
        states = ", ".join(sorted({row[1] for row in rows}))
        why = f"it is {printable(states)}" if states else "squeue does not list it"
        raise UserError(f"job {job} has no hosts now: {why}")
    return hosts, user


def srun_arguments(job: str, host: str, interval: float, agent_size: int) -> Sequence[str]:
    """A step on one host of a job that takes nothing from it: it shares processors and sees every GPU of the job.

    `--overlap` lets it start while other steps have everything; `--mem=0` and `--gres=none` keep it from waiting for a
    share of its own (srun(1), since 20.11).
    """
    return (
        *("srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--mem=0"),
        *("--gres=none", "--unbuffered", "--quiet", "--job-name=vramtui", "--kill-on-bad-exit=1", "--mpi=none"),
        *("sh", "-c", far_command(interval, agent_size)),
    )
