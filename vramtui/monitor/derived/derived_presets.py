"""Presets for processes that none matches, derived from the models they name; on a thread of its own, once for each."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from operator import attrgetter
from queue import Empty, SimpleQueue
from typing import NamedTuple

from vramtui.core.observation.readings import Gpu, Problem, Process, ProcessKey, Roster, Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.derived.confined_derive import ConfinedDerive, ConfinedError

Derive = Callable[[int, str], PresetFile | None]
_Job = tuple[int, float | None, str | None]
_job: Callable[[Process], _Job] = attrgetter("pid", "started_at", "command")
_FILE = re.compile(r"\.(?:ya?ml|json)\b")  # what training programs are configured by
# A host may have thousands of processes; of many new ones the rest is looked for with the next samples.
KEPT, MOST_WAITING = 1 << 15, 64
IDLE = 1.0  # seconds that the thread waits for more
MOST_PROBLEMS = 20
MOST_WAITS = 2  # processes that a command waits for in vain: then it does without the rest
HINT = "m gives it a preset."


class _Merged(NamedTuple):
    """What was matched and said by hand, the processes of both, what was derived for others, and the whole of it."""

    matched: Mapping[ProcessKey, PresetFile]
    by_hand: Mapping[ProcessKey, str | None]
    settled: AbstractSet[ProcessKey]
    derived: Mapping[ProcessKey, PresetFile]
    whole: Mapping[ProcessKey, PresetFile]


class _Seen(NamedTuple):
    """Who is on one GPU, those of them that are still looked for, and the presets of the others."""

    roster: Roster
    waiting: Mapping[ProcessKey, _Job]
    answers: dict[ProcessKey, PresetFile]


class DerivedPresets:
    """Answers with what is known by now; what is not is looked for in the background.

    Args:
        derive: the preset of a pid with a command line; None where it names no model. It may take its time, and raise
            ConfinedError. By default a child with limits does it: the files are those of any user.
        wait: answer only when it is looked for: for a command that reads one sample.

    Attributes:
        problems: processes whose models took more than they may.
    """

    def __init__(self, derive: Derive | None = None, *, wait: bool = False) -> None:
        self._confined = ConfinedDerive()
        self._derive = derive or self._confined
        self._wait = wait
        self.problems: tuple[Problem, ...] = ()
        self._known: OrderedDict[_Job, PresetFile | None] = OrderedDict()
        self._asked: set[_Job] = set()
        self._queue: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_running = False
        self._settled: AbstractSet[ProcessKey] = frozenset()
        self._seen: dict[tuple[str, str], _Seen] = {}
        self._latest: tuple[list[dict[ProcessKey, PresetFile]], Mapping[ProcessKey, PresetFile]] = ([], {})
        self._is_waiting = False
        self._merged = _Merged({}, {}, set(), {}, {})

    def beside(
        self, sample: Sample, matched: Mapping[ProcessKey, PresetFile], by_hand: Mapping[ProcessKey, str | None]
    ) -> Mapping[ProcessKey, PresetFile]:
        """`matched` and the derived preset of each process in `sample` that is neither in it nor in `by_hand`; or that
        is matched and names a file of its own, where more is known of the job with that file.

        There may be thousands, of which mostly none comes or goes. A Matcher gives the very same `matched` again only
        while every process is the one it was: then what was derived stands too, unless some were still looked for.
        """
        before = self._merged
        is_same = matched is before.matched and by_hand == before.by_hand
        if is_same and not self._is_waiting:
            return before.whole
        settled = before.settled if is_same else {*matched, *by_hand} - _with_file(sample, matched, by_hand)
        derived = self.of(sample, settled)
        if not is_same or derived is not before.derived:
            better = {key for key in derived.keys() & matched.keys() if _knows_more(derived[key], matched[key])}
            first = {key: found for key, found in matched.items() if key not in better}
            whole = {**derived, **first} if derived else matched
            self._merged = _Merged(matched, dict(by_hand), settled, derived, whole)
        return self._merged.whole

    def of(self, sample: Sample, settled: AbstractSet[ProcessKey]) -> Mapping[ProcessKey, PresetFile]:
        """The derived preset of each process in `sample` that has one and is not `settled` otherwise: the same object
        again while it says the same.
        """
        if settled is not self._settled and settled != self._settled:
            self._seen = {}
        self._settled, self._is_waiting = settled, False
        answered: list[dict[ProcessKey, PresetFile]] = []
        host = sample.host.name
        for gpu in sample.gpus:
            seen = self._seen.get((host, gpu.uuid))
            if seen is None or seen.roster != gpu.roster:  # on most cards nobody comes or goes
                jobs = map(_job, gpu.processes)
                keys = {ProcessKey(host, gpu.uuid, job[0], job[1]): job for job in jobs if job[2]}
                wanted = {key: job for key, job in keys.items() if key not in settled}
                seen = _Seen(gpu.roster, wanted, {})
            if seen.waiting:
                seen = self._answer(seen, gpu)
            self._seen[host, gpu.uuid] = seen
            self._is_waiting = self._is_waiting or bool(seen.waiting)
            answered.append(seen.answers)
        if self._wait:
            self._confined.close()  # no sample may follow
        before, found = self._latest
        if len(before) != len(answered) or any(one is not other for one, other in zip(before, answered, strict=True)):
            found = {key: preset for one in answered for key, preset in one.items()}
            self._latest = (answered, found)
        return found

    def _answer(self, seen: _Seen, gpu: Gpu) -> _Seen:
        """`seen` with the answers that have come meanwhile."""
        known = {key: job for key, job in seen.waiting.items() if self._is_known(job)}
        if not known:
            return seen
        loading = {process.pid: process.module_loading for process in gpu.processes}
        found = ((key, self._known.get(job)) for key, job in known.items())
        answers = {key: preset.as_loaded(loading[key.pid]) for key, preset in found if preset is not None}
        waiting = {key: job for key, job in seen.waiting.items() if key not in known}
        return _Seen(seen.roster, waiting, {**seen.answers, **answers} if answers else seen.answers)

    def _is_known(self, job: _Job) -> bool:
        if job not in self._known:
            if self._wait:
                self._look(job)
            else:
                self._ask(job)
        return job in self._known

    def _ask(self, job: _Job) -> None:
        with self._lock:
            if job in self._asked or len(self._asked) >= MOST_WAITING:
                return
            self._asked.add(job)
            self._queue.put(job)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="derive presets", daemon=True).start()

    def _work(self) -> None:
        """Until there is nothing to look for. A folder that hangs holds up this thread alone."""
        while True:
            try:
                job = self._queue.get(timeout=IDLE)
            except Empty:
                with self._lock:
                    if self._queue.empty():
                        self._is_running = False
                        self._confined.close()
                        return
                continue
            self._look(job)
            with self._lock:
                self._asked.discard(job)

    def _look(self, job: _Job) -> None:
        pid, _, command = job
        if self._wait and len(self.problems) >= MOST_WAITS:
            return
        try:
            self._known[job] = self._derive(pid, command or "")
        except ConfinedError as error:
            self._known[job] = None
            if len(self.problems) < MOST_PROBLEMS:
                self.problems = (*self.problems, Problem(where=f"pid {pid}", message=f"{error}.", hint=HINT))
        except Exception:  # noqa: BLE001 - files of any program: one that cannot be read names no model
            self._known[job] = None
        while len(self._known) > KEPT:
            self._known.popitem(last=False)


def _with_file(
    sample: Sample, matched: Mapping[ProcessKey, PresetFile], by_hand: Mapping[ProcessKey, str | None]
) -> set[ProcessKey]:
    """The matched processes of which something is assumed and whose command line names a file that may say it."""
    host = sample.host.name
    return {
        key
        for gpu in sample.gpus
        for process in gpu.processes
        if process.command and _FILE.search(process.command)
        for key in (ProcessKey(host, gpu.uuid, process.pid, process.started_at),)
        if key in matched and matched[key].assumed and key not in by_hand
    }


def _knows_more(one: PresetFile, other: PresetFile) -> bool:
    return len(one.assumed) < len(other.assumed)
