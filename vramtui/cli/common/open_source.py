"""The source of a command's samples: this machine, the demo, a recording, a feed, or other hosts."""

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.cli.common.exit_codes import say, show_progress
from vramtui.cli.common.option_groups import HostOptions
from vramtui.core.base.errors import SourceFailed, UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import ScreenSource, Source, answerer

if TYPE_CHECKING:
    from vramtui.core.observation.matcher import Matcher
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.snapshot import Snapshot
    from vramtui.monitor.jobs import EarlierSamples
    from vramtui.monitor.session import MonitorSession, RecordedPeaks
    from vramtui.records.recording.files import Recording
    from vramtui.sources.probe_listener import ProbeListener


M_ARENA_MAX = -8  # of glibc's malloc.h
M_MMAP_THRESHOLD, OWN_PAGES = -3, 1 << 16  # bytes; glibc would raise it by itself
DEMO = "This is the built-in demo: its GPUs are not real."


class OpenedSource(msgspec.Struct, frozen=True):
    """A source, the sentence to show above it, the recording that it plays, what its jobs tell, the peaks that its
    samples do not show, what is known of the time before it was opened, and what tells a process's PyTorch where its
    samples do not (each or None). `elsewhere` where its processes are not this machine's.
    """

    source: Source
    banner: str | None = None
    recording: "Recording | None" = None
    jobs: "Callable[[], tuple[ObservedJob, ...]] | None" = None
    peaks: "RecordedPeaks | None" = None
    elsewhere: bool = False
    past: "EarlierSamples | None" = None
    torch_of: Callable[[int], str | None] | None = None

    @property
    def is_real(self) -> bool:
        """Return whether it is this machine as it is now."""
        return not self.banner and self.recording is None and not self.elsewhere


def use_one_heap(*, lasting: bool = False) -> None:
    """Let all threads allocate from one heap, as far as the C library knows how (glibc; to be called before there are
    threads).

    By itself glibc gives each thread a heap of its own: after nine minutes of churn 95 MB are resident instead of 79
    (`benchmarks/soak.py`). Python's own lock lets one thread allocate at a time anyway. Where it is `lasting`, lists
    of thousands of rows come and go; in the heap they leave holes (1 MB with 16,384 processes), so they get pages.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library, or none to be called
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
        if lasting:
            ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, OWN_PAGES)


def open_source(
    demo: bool = False,
    replay: Path | None = None,
    feed: str | None = None,
    fall_back: bool = False,
    at_once: bool = False,
    torch: bool = True,
) -> OpenedSource:
    """The source the options ask for; this machine's GPUs by default, with or without its processes' `torch`."""
    asked = [name for name, wanted in (("--demo", demo), ("--replay", replay), ("--feed", feed)) if wanted]
    use_one_heap(lasting=at_once)
    if len(asked) > 1:
        raise UserError(f"{' and '.join(asked)} show different things; give one of them")
    if feed is not None:
        from vramtui.records.recording.files import LiveRecording
        from vramtui.sources.feed import PipeSource

        live = LiveRecording()
        pipe = PipeSource(open_descriptor(feed), "standard input" if feed == STANDARD_INPUT else feed, live)
        return OpenedSource(pipe, jobs=live.jobs, peaks=live.peaks, elsewhere=True)
    if replay is not None:
        from vramtui.records.recording.files import open_recording, read_recording

        progress = ReadingProgress(replay)
        try:
            recording = open_recording(replay) if at_once else read_recording(replay, progress)
        finally:
            progress.clear()
        from vramtui.sources.feed import ReplaySource

        notes = "; ".join((f"replay of {printable(replay.name)}", *recording.warnings))
        return OpenedSource(ReplaySource(recording.samples, times=recording.times), notes, recording)
    if demo:
        from vramtui.sources.demo import DemoSource

        host = DemoSource()

        def jobs() -> "tuple[ObservedJob, ...]":
            from vramtui.cli.common.demo_jobs import demo_jobs

            return demo_jobs(host)

        def reports() -> "Iterator[tuple[float, tuple[ObservedJob, ...]]]":
            from vramtui.cli.common.demo_jobs import demo_jobs

            now = host.began + host.elapsed
            yield from ((now - before, demo_jobs(host, before)) for before in BEFORE)

        from vramtui.monitor.jobs import EarlierSamples

        return OpenedSource(host, DEMO, jobs=jobs, past=EarlierSamples(map(host.read, BEFORE), reports()))
    from vramtui.sources.pick import pick_source  # loads pynvml, which the demo does not need

    try:
        source = pick_source()
        if at_once and isinstance(source, ScreenSource):
            source.shorten_first_read()
        leave_torch = None if torch else getattr(source, "leave_torch", None)
        if leave_torch is None:
            return OpenedSource(source)
        from vramtui.agent.runtime import torch_of

        leave_torch()
        return OpenedSource(source, torch_of=torch_of)
    except SourceFailed as error:
        if not fall_back:
            raise
        from vramtui.sources.pick import UnreadSource

        return OpenedSource(UnreadSource(error))


def with_gpus(opened: OpenedSource, only: str | None) -> OpenedSource:
    """The source with only some of its GPUs: indices, beginnings of uuids, or `visible`; all where it is None."""
    if only is None:
        return opened
    from vramtui.sources.pick import SomeGpus, gpu_names

    if opened.recording is not None:
        raise UserError("a recording has the GPUs that it has: filter its rows (/ gpu:0) instead of choosing GPUs")
    return msgspec.structs.replace(opened, source=SomeGpus(opened.source, gpu_names(only)))


def session_of(opened: OpenedSource, matcher: "Matcher | None" = None, **options: Any) -> "MonitorSession":  # noqa: ANN401 - a session's own
    """A session of the source's samples, jobs and peaks that matches the presets of the library, or by `matcher`."""
    from vramtui.monitor.jobs import matcher_of_library
    from vramtui.monitor.session import MonitorSession
    from vramtui.presets import PresetLibrary

    session = MonitorSession(jobs=opened.jobs or tuple, torch_of=opened.torch_of, **options)
    session.recorded_peaks = opened.peaks
    session.match_by((matcher or matcher_of_library(PresetLibrary())).match)
    return session


def snapshots_of(opened: OpenedSource, interval: float = 1.0, *, wait: bool = True) -> "Generator[Snapshot]":
    """A snapshot at each sample; on this machine the first may `wait` for presets that follow from command lines."""
    from vramtui.monitor.poller import ReadQueue

    derived = None
    if opened.is_real:
        from vramtui.monitor.derived_presets import DerivedPresets

        derived = DerivedPresets(wait=wait)
    session = session_of(opened, derived=derived)
    with contextlib.closing(ReadQueue(opened.source, interval)) as reads:
        while True:
            session.ingest(reads.sample(lambda: say_waiting(answerer(opened.source))))
            yield session.snapshot()


def say_waiting(name: str) -> None:
    """Say on standard error whose answer is overdue."""
    say(f"{name} does not answer; still waiting")


STANDARD_INPUT = "-"


def open_descriptor(feed: str) -> int:
    """A file descriptor to read `feed` from; of standard input a copy, as its own may then be the terminal's."""
    if feed != STANDARD_INPUT:
        try:
            return os.open(Path(feed), os.O_RDONLY)
        except OSError as error:
            why = os_reason(error)
            raise UserError(f"--feed: {printable(feed)} cannot be read: {why}") from None
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError("--feed - reads standard input, which is the terminal; try `ssh HOST vramtui record - | …`")
    return os.dup(0)


def give_keys(feed: str | None) -> None:
    """If the samples come through standard input, let the keys come from the terminal itself."""
    if feed != STANDARD_INPUT:
        return
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
    except OSError:
        raise UserError("the dashboard needs a terminal; for a script there is `vramtui ps --feed - --json`") from None
    os.dup2(terminal, 0)
    os.close(terminal)


MOMENT = 0.6  # seconds that nothing is said
BETWEEN = 0.3


class ReadingProgress:
    """Says how much of the file at `path` is read, where that takes longer than a moment."""

    def __init__(self, path: Path) -> None:
        self._name = printable(path.name)
        self._began = self._next = time.monotonic() + MOMENT

    def __call__(self, fraction: float) -> None:
        """So much is read, from 0 to 1."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + BETWEEN
            show_progress(f"reading {self._name}: {fraction:.0%}")

    def clear(self) -> None:
        if self._next != self._began:
            show_progress()


PAST, RECENT = 900, 120  # seconds before the demo was opened that are known, and that are known by the second


# How many seconds before it was opened the demo was looked at: every second of late, then now and then.
BEFORE = tuple(float(seconds) for seconds in (*range(PAST, RECENT, -10), *range(RECENT, 0, -1)))
OVERDUE = 2.0  # seconds after which it is said that a server is waited for


def open_hosts(asked: HostOptions, interval: float, other: object = None) -> dict[str, OpenedSource]:
    """A source for each host, by its name; all connect at once, a few handshakes at a time. Empty without options."""
    if asked.token_file is not None and not asked.prometheus:
        raise UserError("--token-file is for --prometheus")
    if not any(asked):
        return {}
    use_one_heap()
    if other:
        raise UserError("--host and --demo, --replay or --feed show different things; give one of them")
    if asked.prometheus is not None:
        if asked.host or asked.slurm:
            raise UserError("--prometheus shows the hosts that it knows; not with --host or --slurm")
        from vramtui.sources.prometheus import PrometheusClient, PrometheusFleet, PrometheusSource

        client = PrometheusClient(asked.prometheus, asked.token_file)
        fleet = PrometheusFleet(client, interval)
        overdue = threading.Timer(OVERDUE, say_waiting, (client.title,))
        overdue.daemon = True
        overdue.start()
        try:
            hosts = fleet.begin()
        finally:
            overdue.cancel()
        from vramtui.monitor.jobs import EarlierSamples

        return {
            name: OpenedSource(
                PrometheusSource(fleet, name), jobs=tuple, elsewhere=True, past=EarlierSamples(fleet.past(name))
            )
            for name in hosts
        }
    from vramtui.cli.common.settings import settings_in_force
    from vramtui.records.recording.files import LiveRecording
    from vramtui.sources import ssh

    commands: dict[str, Callable[[str, float, int], Sequence[str]]]
    commands = dict.fromkeys(ssh.host_names(asked.host or (), settings_in_force().hosts), ssh.ssh_arguments)
    handshakes = ssh.Handshakes()
    if asked.slurm:
        import getpass
        import shutil

        nodes, user = ssh.job_hosts(asked.slurm)
        if shutil.which("srun") is not None and (os.geteuid() == 0 or getpass.getuser() == user):
            commands |= {node: partial(ssh.srun_arguments, number) for node, number in nodes.items()}
            handshakes = ssh.Handshakes(lambda host: host)  # none of sshd's
        else:
            commands |= dict.fromkeys(nodes, ssh.ssh_arguments)
    opened = {}
    for name, arguments in commands.items():
        recording = LiveRecording()
        source = ssh.SshSource(name, interval, recording.begin, handshakes, arguments)
        opened[name] = OpenedSource(source, jobs=recording.jobs, peaks=recording.peaks, elsewhere=True)
    return opened


HEARD_WITHIN = 1.6  # a probe looks for new listeners once a second, and says how it is every half second at the latest


class ProbeClient:
    """Hears this user's jobs from `listen` on; nothing if no socket can be made, and `problem` says why. The socket's
    file has the `name` and the pid.
    """

    def __init__(self, name: str) -> None:
        self.problem = ""
        self._name = name
        self._listener: ProbeListener | None = None
        self._since: float | None = None

    def listen(self) -> None:
        if self._since is not None:
            return
        from vramtui.sources.probe_listener import ProbeListener

        self._since = time.monotonic()
        try:
            self._listener = ProbeListener(f"{self._name}-{os.getpid()}")
        except SourceFailed as error:
            self.problem = error.sentence

    def jobs(self) -> "Sequence[ObservedJob]":
        """The reports of each job that was started with a probe."""
        self.listen()
        return () if self._listener is None else self._listener.jobs()

    def wait(self) -> None:
        """Until everyone who is there has had the time to say something."""
        self.listen()
        if self._listener is not None and self._since is not None:
            time.sleep(max(0.0, self._since + HEARD_WITHIN - time.monotonic()))

    def close(self) -> None:
        """Listen no longer; what was reported can still be read."""
        if self._listener is not None:
            self._listener.close()

    def vanish(self) -> None:
        """The process ends: remove the socket's name, which takes no time."""
        if self._listener is not None:
            self._listener.path.unlink(missing_ok=True)
