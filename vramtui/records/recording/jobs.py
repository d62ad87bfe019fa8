"""What probes told, in a recording: for each job what changed since the line about it before.

`{"job": {"at": …, "pid": …, "new": true, "changes": {…}, "moments": […], "ooms": […]}}`: `changes` is a JSON merge
patch (RFC 7396) of the job as `vramtui.core.observation.probe_messages.ObservedJob` has it, without its moments and
ooms and with the devices of a beat by their index; `moments` and `ooms` come after those known before. With `new`
nothing before counts: another job has the pid. `at` is the time of the sample at which it was noted.

However many jobs there are and however much they tell, so many bytes a second are written and no more: what does not
fit waits, and is then written as it is by then. So a recording knows how each job came out, and less closely when. The
first steps are there phase by phase; of later ones a phase is there where it ended otherwise than in the step before,
as long as there is room for it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vramtui.core.observation.probe_messages import (
    FIRST_STEPS,
    LATEST,
    ObservedJob,
    OutOfMemory,
    PhaseEnd,
    Pid,
    latest_moments,
)

BYTES_A_SECOND = 2000
BURST = 1 << 20  # bytes that may come at once: every job begins with who it is and its first steps

LATER_MOMENTS = 16  # in one line, of steps after the first
MOST_STATES = 30_000  # of all jobs, held while a recording is played
MOST_LIVE = 8192  # jobs, those that have gone among them, of a recording that goes on; as many as are heard here
FREE_MOMENTS = 0.5  # of BURST that must be left for them

Changes = dict[str, Any]
Figures = tuple[int | None, ...]


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """See the module's text."""

    at: Annotated[float, Meta(ge=0, lt=1e12)]
    pid: Pid
    new: bool = False
    changes: Changes = {}
    moments: tuple[PhaseEnd, ...] = ()
    ooms: tuple[OutOfMemory, ...] = ()


class WrittenJobs:
    """Makes the lines about jobs, sample after sample."""

    def __init__(self) -> None:
        self._written: dict[int, _Written] = {}
        self._credit = float(BURST)
        self._at: float | None = None

    def lines(self, at: float, jobs: Sequence[ObservedJob]) -> Iterator[bytes]:
        """The lines for the sample taken at `at`, after which `jobs` is what each has told."""
        passed = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at
        self._credit = min(float(BURST), self._credit + passed * BYTES_A_SECOND)
        for job in self._waiting(jobs):
            if self._credit <= 0:
                break
            line = msgspec.json.encode({"job": self._line(at, job)})
            self._credit -= len(line)
            yield line
        if len(self._written) > len(jobs):
            known = {job.pid for job in jobs}
            self._written = {pid: written for pid, written in self._written.items() if pid in known}

    def _waiting(self, jobs: Sequence[ObservedJob]) -> list[ObservedJob]:
        """Those that have told more, the most pressing first: new ones, turns of fate, then the longest waiting."""
        waiting = []
        for job in jobs:
            written = self._written.get(job.pid)
            if written is None or written.job is not job:
                waiting.append((_calm(written, job), 0.0 if written is None else written.at, job))
        waiting.sort(key=lambda entry: entry[:2])
        return [job for _, _, job in waiting]

    def _line(self, at: float, job: ObservedJob) -> JobLine:
        before = self._written.get(job.pid)
        if before is not None and _another(before.job, job):
            before = None
        document = _document(job)
        noted = -1.0 if before is None else before.noted
        ends = {} if before is None else before.ends
        first, later = [], []
        for end in job.moments:
            if end.at > noted:
                if end.step < FIRST_STEPS:
                    first.append(end)
                elif _figures(end) != ends.get((end.device, end.phase)):
                    later.append(end)
            ends[end.device, end.phase] = _figures(end)
        later = later[-LATER_MOMENTS:] if self._credit > FREE_MOMENTS * BURST else []
        latest = max((end.at for end in job.moments), default=noted)
        last_oom = -1.0 if before is None else max((oom.at for oom in before.job.ooms), default=-1.0)
        self._written[job.pid] = _Written(job=job, at=at, document=document, noted=latest, ends=ends)
        return JobLine(
            at=at,
            pid=job.pid,
            new=before is None,
            changes=document if before is None else _patch(before.document, document),
            moments=(*first, *later),
            ooms=tuple(oom for oom in job.ooms if oom.at > last_oom),
        )


class ReadJobs:
    """What each job had told by any moment of a recording; one thread may add while another looks.

    Of a day of a crowded host not every moment is kept: when there are too many, every second one goes that is no turn
    of the job's fate, so that of what is long ago the fewest are left.

    Args:
        most: states of all jobs that are held before some go.
        keeps_past: what was is asked for as well; else the latest state alone of so many jobs.
    """

    def __init__(self, most: int = MOST_STATES, *, keeps_past: bool = True) -> None:
        self._keeps_past = keeps_past
        self._documents: dict[int, Changes] = {}
        self._known: dict[int, tuple[list[float], list[ObservedJob]]] = {}
        self._most = self._next_thinning = most
        self._count = 0

    def __bool__(self) -> bool:
        return bool(self._known)

    def take(self, line: JobLine) -> None:
        """Note the next line.

        Raises:
            msgspec.ValidationError: what comes of it is no job.
        """
        times, states = self._known.get(line.pid, ([], []))
        old = {} if line.new else self._documents.get(line.pid, {})
        document = _patched(old, line.changes)
        former = None if line.new or not states else states[-1]
        job = _job(line, document, former, same_hello=document.get("hello") is old.get("hello"))
        self._documents[line.pid] = document
        if not self._keeps_past:
            self._keep_latest(line, job)
            return
        # Not always at the end: the clock may have been set back.
        place = bisect_right(times, line.at)
        # The state first: somebody may look meanwhile, and looks for times.
        states.insert(place, job)
        times.insert(place, line.at)
        self._known[line.pid] = times, states
        self._count += 1
        if self._count > self._next_thinning:
            self._thin()

    def _keep_latest(self, line: JobLine, job: ObservedJob) -> None:
        self._known[line.pid] = [line.at], [job]
        if len(self._known) > MOST_LIVE:
            gone = (pid for pid, (_, states) in self._known.items() if states[-1].gone)
            forgotten = next(gone, next(iter(self._known)))
            del self._known[forgotten], self._documents[forgotten]

    def _thin(self) -> None:
        for pid, (times, states) in self._known.items():
            places = [place for place in range(len(times)) if place % 2 == 0 or _turns(states, place)]
            self._known[pid] = [times[place] for place in places], [states[place] for place in places]
        self._count = sum(len(times) for times, _ in self._known.values())
        # Turns are kept however many there are: they are not to be looked through again at every line.
        self._next_thinning = max(self._most, self._count + self._most // 4)

    def at(self, when: float) -> tuple[ObservedJob, ...]:
        """Each job as it was known at `when`, seconds since the epoch."""
        # A copy: more may be read meanwhile.
        states_then = ((states, bisect_right(times, when)) for times, states in list(self._known.values()))
        return tuple(states[place - 1] for states, place in states_then if place)


def _turns(states: list[ObservedJob], place: int) -> bool:
    """Whether the state at that place is the last one, or tells more than that time went on."""
    if place == len(states) - 1:
        return True
    old, new = states[place - 1], states[place]
    return (old.hello, old.end, old.gone, len(old.ooms)) != (new.hello, new.end, new.gone, len(new.ooms))


class _Written(msgspec.Struct, kw_only=True):
    """What was written of a job last, and `ends`, how each phase on each device ended when it was written last."""

    job: ObservedJob
    at: float
    document: Changes
    noted: float
    ends: dict[tuple[int, str], Figures]


def _calm(written: _Written | None, job: ObservedJob) -> bool:
    """Whether nothing happened to the job but that time went on."""
    if written is None:
        return False
    old = written.job
    return (old.hello, old.end, old.gone, len(old.ooms)) == (job.hello, job.end, job.gone, len(job.ooms))


def _another(old: ObservedJob, new: ObservedJob) -> bool:
    """Whether another process has the pid by now."""
    return old.hello is not None and old.hello != new.hello


def _figures(end: PhaseEnd) -> Figures:
    return end.allocated, end.reserved, end.peak_allocated, end.peak_reserved


def _document(job: ObservedJob) -> Changes:
    """The job as JSON has it, without what only grows."""
    document: Changes = msgspec.to_builtins(job, str_keys=True)
    for name in ("pid", "moments", "ooms"):
        del document[name]
    beat = document.get("beat")
    if beat is not None:
        beat["devices"] = {str(device["index"]): device for device in beat["devices"]}
        del beat["moments"]
    known: Changes = _without_none(document)
    return known


def _without_none(value: Any) -> Any:  # noqa: ANN401 - a tree of whatever JSON can hold
    """`value` without what is None in its objects."""
    if isinstance(value, dict):
        return {name: _without_none(entry) for name, entry in value.items() if entry is not None}
    return value


def _job(line: JobLine, document: Changes, former: ObservedJob | None, *, same_hello: bool) -> ObservedJob:
    fields = {**document, "pid": line.pid}
    # Who the job is takes more room than what it does, and hardly ever changes.
    hello = former.hello if former is not None and same_hello else None
    if hello is not None:
        del fields["hello"]
    beat = fields.get("beat")
    if isinstance(beat, dict) and isinstance(beat.get("devices"), dict):
        fields["beat"] = {**beat, "devices": [device for _, device in sorted(beat["devices"].items())]}
    job = msgspec.convert(fields, ObservedJob, str_keys=True)
    if hello is not None:
        job = msgspec.structs.replace(job, hello=hello)
    moments, ooms = ((), ()) if former is None else (former.moments, former.ooms)
    return msgspec.structs.replace(
        job,
        moments=latest_moments(moments, line.moments) if line.moments else moments,
        ooms=(*ooms, *line.ooms)[-LATEST:],
    )


def _patch(old: Changes, new: Changes) -> Changes:
    """The merge patch that makes `new` of `old`."""
    patch: Changes = {name: None for name in old if name not in new}
    for name, value in new.items():
        former = old.get(name)
        if isinstance(value, dict) and isinstance(former, dict):
            inner = _patch(former, value)
            if inner:
                patch[name] = inner
        elif value != former:
            patch[name] = value
    return patch


def _patched(old: Changes, patch: Changes) -> Changes:
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            former = result.get(name)
            result[name] = _patched(former if isinstance(former, dict) else {}, value)
        else:
            result[name] = value
    return result
