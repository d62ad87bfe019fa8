"""Reports of probes in a recording: for each job the changes since the line about it before.

`{"job": {"at": …, "pid": …, "new": true, "changes": {…}, "moments": […], "ooms": […]}}`: `changes` are those of its
`vramtui.core.observation.probe_messages.ObservedJob`; `moments` and `ooms` are added to those known before. `new`
starts another job with this pid. `at` is the time of the sample.

A limited number of bytes a second is written, however many jobs there are. A line that has to wait has the state at the
time when it is written, so the end of each job is exact and the way there less so. The first steps have every phase;
a later phase is written if its figures differ from those in the step before and there is room.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from vramtui.core.observation import probe_messages
from vramtui.records.recording.samples import Changes, changes_between, with_changes

BYTES_A_SECOND = 2000
BURST = 1 << 20  # bytes at once: every job begins with its hello and its first steps

LATER_MOMENTS = 16  # in one line, of steps after the first
MOST_STATES = 30_000  # of all jobs, in memory while a recording is played
MOST_LIVE = 8192  # jobs of a recording that goes on, those that ended included
FREE_MOMENTS = 0.5  # of BURST that must be left for later moments

Figures = tuple[int | None, ...]


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: Annotated[float, Meta(ge=0, lt=1e12)]
    pid: probe_messages.Pid
    new: bool = False
    changes: Changes = {}
    moments: tuple[probe_messages.PhaseEnd, ...] = ()
    ooms: tuple[probe_messages.OutOfMemory, ...] = ()


class _Written(msgspec.Struct, kw_only=True):
    """The last line about a job, and the last figures of each phase on each device."""

    job: probe_messages.ObservedJob
    at: float
    noted: float
    ends: dict[tuple[int, str], Figures]


class WrittenJobs:
    """Makes the lines about jobs, sample after sample."""

    def __init__(self) -> None:
        self._written: dict[int, _Written] = {}
        self._credit = float(BURST)
        self._at: float | None = None

    def lines(self, at: float, jobs: Sequence[probe_messages.ObservedJob]) -> Iterator[bytes]:
        """The lines for the sample taken at `at`: new jobs and turns first, then the job that waited longest."""
        passed = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at
        self._credit = min(float(BURST), self._credit + passed * BYTES_A_SECOND)
        waiting: list[tuple[bool, float, probe_messages.ObservedJob]] = []
        for job in jobs:
            written = self._written.get(job.pid)
            if written is None:
                waiting.append((False, 0.0, job))
            elif written.job is not job:
                waiting.append((not _is_turn(written.job, job), written.at, job))
        for _, _, job in sorted(waiting, key=lambda entry: entry[:2]):
            if self._credit <= 0:
                break
            line = msgspec.json.encode({"job": self._line(at, job)})
            self._credit -= len(line)
            yield line
        if len(self._written) > len(jobs):
            known = {job.pid for job in jobs}
            self._written = {pid: written for pid, written in self._written.items() if pid in known}

    def _line(self, at: float, job: probe_messages.ObservedJob) -> JobLine:
        before = self._written.get(job.pid)
        if before is not None and before.job.hello is not None and before.job.hello != job.hello:
            before = None  # another process with this pid
        noted = -1.0 if before is None else before.noted
        ends = {} if before is None else before.ends
        first, later = [], []
        for end in job.moments:
            figures = (end.allocated, end.reserved, end.peak_allocated, end.peak_reserved)
            if end.at > noted and end.step < probe_messages.FIRST_STEPS:
                first.append(end)
            elif end.at > noted and figures != ends.get((end.device, end.phase)):
                later.append(end)
            ends[end.device, end.phase] = figures
        if self._credit <= FREE_MOMENTS * BURST:
            later = []
        latest = max((end.at for end in job.moments), default=noted)
        last_oom = -1.0 if before is None else max((oom.at for oom in before.job.ooms), default=-1.0)
        self._written[job.pid] = _Written(job=job, at=at, noted=latest, ends=ends)
        old = probe_messages.ObservedJob(pid=job.pid) if before is None else before.job
        return JobLine(
            at=at,
            pid=job.pid,
            new=before is None,
            changes=changes_between(_without_lists(old), _without_lists(job)),
            moments=(*first, *later[-LATER_MOMENTS:]),
            ooms=tuple(oom for oom in job.ooms if oom.at > last_oom),
        )


def _without_lists(job: probe_messages.ObservedJob) -> probe_messages.ObservedJob:
    beat = job.beat and msgspec.structs.replace(job.beat, moments=())
    return msgspec.structs.replace(job, beat=beat, moments=(), ooms=())


def _is_turn(old: probe_messages.ObservedJob, new: probe_messages.ObservedJob) -> bool:
    """More happened to the job than that time went on."""
    return (old.hello, old.end, old.gone, len(old.ooms)) != (new.hello, new.end, new.gone, len(new.ooms))


class ReadJobs:
    """The state of each job at any moment of a recording; one thread may add while another reads.

    Beyond `most` states of all jobs, every second one without a turn goes: the oldest are thinned most. Without
    `keeps_past` only the latest state of `MOST_LIVE` jobs is kept.
    """

    def __init__(self, most: int = MOST_STATES, *, keeps_past: bool = True) -> None:
        self._keeps_past = keeps_past
        self._last: dict[int, probe_messages.ObservedJob] = {}
        self._known: dict[int, tuple[list[float], list[probe_messages.ObservedJob]]] = {}
        self._most = self._next_thinning = most
        self._count = 0

    def take(self, line: JobLine) -> None:
        """Add the next line.

        Raises:
            msgspec.ValidationError: it does not make a job.
        """
        times, states = self._known.get(line.pid, ([], []))
        former = None if line.new else self._last.get(line.pid)
        job = with_changes(former or probe_messages.ObservedJob(pid=line.pid), {**line.changes, "pid": line.pid})
        moments = probe_messages.latest_moments(job.moments, line.moments) if line.moments else job.moments
        job = msgspec.structs.replace(job, moments=moments, ooms=(*job.ooms, *line.ooms)[-probe_messages.LATEST :])
        self._last[line.pid] = job
        if not self._keeps_past:
            self._known[line.pid] = [line.at], [job]
            if len(self._known) > MOST_LIVE:
                gone = (pid for pid, (_, states) in self._known.items() if states[-1].gone)
                forgotten = next(gone, next(iter(self._known)))
                del self._known[forgotten], self._last[forgotten]
            return
        place = bisect_right(times, line.at)  # not always the end: the clock may have been set back
        states.insert(place, job)  # before its time: another thread looks for times
        times.insert(place, line.at)
        self._known[line.pid] = times, states
        self._count += 1
        if self._count > self._next_thinning:
            for pid, (times, states) in self._known.items():
                last = len(times) - 1
                stay = [
                    at for at in range(last + 1) if at % 2 == 0 or at == last or _is_turn(states[at - 1], states[at])
                ]
                self._known[pid] = [times[at] for at in stay], [states[at] for at in stay]
            self._count = sum(len(times) for times, _ in self._known.values())
            # Turns always stay; without this margin each line would look through them again.
            self._next_thinning = max(self._most, self._count + self._most // 4)

    def at(self, when: float) -> tuple[probe_messages.ObservedJob, ...]:
        """Each job as it was known at `when`, seconds since the epoch."""
        # A copy: another thread may add meanwhile.
        states_then = ((states, bisect_right(times, when)) for times, states in list(self._known.values()))
        return tuple(states[place - 1] for states, place in states_then if place)
