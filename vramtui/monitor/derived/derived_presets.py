"""Presets for processes that none matches, derived from the models they name; on a thread of its own, once for each."""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, SimpleQueue

from vramtui.core.observation.readings import Problem, Process, ProcessKey, Sample, process_key
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.derived.confined_derive import ConfinedDerive, ConfinedError

Derive = Callable[[int, str], PresetFile | None]
_Job = tuple[int, float | None, str]
_FILE = re.compile(r"\.(?:ya?ml|json)\b")  # what training programs are configured by
# A host may have hundreds of processes; of many new ones the rest is looked for with the next samples.
KEPT, MOST_WAITING = 1 << 15, 64
IDLE = 1.0  # seconds that the thread waits for more
MOST_PROBLEMS = 20
MOST_WAITS = 2  # processes that a command waits for in vain: then it does without the rest
HINT = "m gives it a preset."


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

    def beside(
        self, sample: Sample, matched: Mapping[ProcessKey, PresetFile], by_hand: Mapping[ProcessKey, str | None]
    ) -> Mapping[ProcessKey, PresetFile]:
        """`matched` and the derived preset of each process in `sample` that is neither in it nor in `by_hand`; or that
        is matched and names a file of its own, where more is known of the job with that file.
        """
        derived = {}
        for key, process in _processes(sample):
            first = matched.get(key)
            if not process.command or key in by_hand or (first is not None and not _may_say_more(first, process)):
                continue
            preset = self._preset((process.pid, process.started_at, process.command), process)
            if preset is not None and (first is None or len(preset.assumed) < len(first.assumed)):
                derived[key] = preset
        if self._wait:
            self._confined.close()  # no sample may follow
        return {**derived, **{key: found for key, found in matched.items() if key not in derived}}

    def _preset(self, job: _Job, process: Process) -> PresetFile | None:
        """What is known of a job by now."""
        if job not in self._known:
            if self._wait:
                self._look(job)
            else:
                self._ask(job)
        preset = self._known.get(job)
        if preset is not None:
            preset = self._known[job] = preset.as_loaded(process.module_loading)
        return preset

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


def _processes(sample: Sample) -> Iterator[tuple[ProcessKey, Process]]:
    for gpu in sample.gpus:
        for process in gpu.processes:
            yield process_key(sample.host.name, gpu, process), process


def _may_say_more(preset: PresetFile, process: Process) -> bool:
    """Whether something is assumed of a matched job whose command line names a file that may say it."""
    return bool(preset.assumed and _FILE.search(process.command or ""))
