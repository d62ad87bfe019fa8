"""What has to hold whatever goes wrong: the rules by which every combination is judged."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from tests.faults.combinations import BACK, HANGS, IS_SLOW, OF_MIG, RUNNING, Combination, used_at
from tests.faults.host import surroundings
from tests.fuzz.pictures import lines_of, rows_of
from tests.fuzz.targets import LIVE
from tests.stub.world import NOT_SUPPORTED, World
from vramtui.agent.counters import RATES
from vramtui.app.help.dialog import problems_of
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.bounded_samples import is_possible
from vramtui.core.observation.readings import METRICS, Gpu, Sample, decode_sample, encode_sample
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession
from vramtui.sources.nvml.source import NvmlSource

BEGIN = 1_000_000.0
PATIENCE, LONG = 0.2, 4.0  # seconds that a card is waited for; a quarter of that where another one hangs
RARELY = 100.0  # seconds; more than anything is remembered for
TICK = 1.0  # seconds between two looks of the program
BLOCKED = 0.05  # seconds after which a read that is to hang is taken to do so
CLASS_NAME = re.compile(r"\b[A-Z][a-z]+[A-Z]\w*(?:Error|Gone|Failed)\b|Traceback")
SIZES = ("total", "used", "reserved", "free")


@dataclass
class Judged:
    """What came of a combination: the rules that were broken, in words, and whether the call was made at all."""

    broken: list[str] = field(default_factory=list)
    met: bool = False


class Bench:
    """The program's own parts on a host that changes: a source, a session, the panels of the dashboard."""

    def __init__(self, path: Path, calls: Callable[[str], int]) -> None:
        self.path, self.calls, self.patience = path, calls, PATIENCE
        self.usual: dict[str, Sample] = {}  # what is read of the host without the fault, by call

    def judge(self, case: Combination) -> Judged:
        """Bring a combination about and see which rules it breaks. Where it breaks one, a card is waited for longer: a
        machine that is short of processors must not be taken for a driver that hangs.
        """
        self.patience = PATIENCE
        found = self._judge(case)
        if found.broken:
            self.patience = LONG
            found = self._judge(case)
        return found

    def _judge(self, case: Combination) -> Judged:
        found = Judged()
        run = _Run(self, case, found)
        try:
            run.go()
        except Exception as error:  # noqa: BLE001 - this is what the first rule forbids
            found.broken.append(f"not alive: {type(error).__name__}: {error}")
        finally:
            World().write(self.path)  # what still hangs in the library comes back
            run.source.close()
        return found


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    with surroundings({"world": {}}, folder) as path:
        library = pynvml.nvmlLib
        yield Bench(path, lambda name: int(library.stub_calls(name.encode())))


class _Run:
    def __init__(self, bench: Bench, case: Combination, found: Judged) -> None:
        self._bench, self._case, self._found = bench, case, found
        self._now, self._tick = BEGIN, 0
        self.source = NvmlSource(clock=self._clock, monotonic=self._clock, timeout=bench.patience)
        self._state = DashboardState(MonitorSession(predictor=Predictor()))
        self._usual: Sample  # once `go` has looked

    def go(self) -> None:
        known = self._bench.usual
        if self._case.call not in known or self._case.when == RUNNING:
            usual = self._look(broken=False)
            assert isinstance(usual, Sample), f"the host without a fault: {usual}"
            known[self._case.call] = usual
            if self._case.when != RUNNING:
                self.source.close()
                self.source = NvmlSource(clock=self._clock, monotonic=self._clock, timeout=self._bench.patience)
                self._state = DashboardState(MonitorSession(predictor=Predictor()))
        self._usual = known[self._case.call]
        before = self._bench.calls(self._case.call)
        for _ in range(2):
            self._wrong()
        self._found.met = self._bench.calls(self._case.call) > before
        if self._case.when == BACK:
            self._back()

    def _clock(self) -> float:
        return self._now

    def _wrong(self) -> None:
        hangs = self._case.what == HANGS and self._case.is_of_the_driver
        seen = self._while_it_hangs() if hangs else self._look(broken=True)
        if seen is None:
            return
        if isinstance(seen, SourceFailed):
            self._sentence(f"{seen.message} {seen.hint}")
            if not self._case.is_of_the_driver and self._case.what not in _OF_THE_WHOLE_DRIVER:
                self._broken(f"one card's failure is the source's: {seen.message}")
            self._shown(f"{seen.message}")
            return
        self._others(seen)
        if seen.gpus and seen.gpus[0].name != "NVIDIA B":
            self._told(seen.gpus[0])
        elif not seen.problems:
            self._broken("a card is missing, and nothing says so")
        self._shown("")
        self._close_look(seen)

    def _back(self) -> None:
        at_once = self._look(broken=False)
        over = time.monotonic() + TICK
        while isinstance(at_once, Sample) and self._case.what == HANGS and time.monotonic() < over:
            if all(gpu.state == "ok" for gpu in at_once.gpus):
                break
            time.sleep(BLOCKED)  # the thread in the driver has to see that it answers
            at_once = self._look(broken=False, seconds=0.0)
        later = self._look(broken=False, seconds=RARELY)
        for sample in (at_once, later):
            if not isinstance(sample, Sample):
                self._broken(f"it does not come back: {sample}")
                return
        assert isinstance(at_once, Sample)
        assert isinstance(later, Sample)
        # A lie that could be true, and "there is no instance", are believed until it is asked for again.
        believed = self._case.is_spoilt or (self._case.call in OF_MIG and self._case.what in _THERE_IS_NONE)
        if not believed and [gpu.state for gpu in at_once.gpus] != [gpu.state for gpu in self._usual.gpus]:
            self._broken(f"not back within a tick: {[(gpu.uuid, gpu.reason) for gpu in at_once.gpus]}")
        for wanted, now in zip(self._usual.gpus, later.gpus, strict=False):
            if _figures(wanted) != _figures(now) and wanted.name != "NVIDIA B":
                is_now = _figures(now)
                others = {name: (was, is_now[name]) for name, was in _figures(wanted).items() if is_now[name] != was}
                self._broken(f"not as it was: {others}")
        self._others(later)

    def _look(self, *, broken: bool, seconds: float = 1.0) -> Sample | SourceFailed:
        self._tick += 1
        self._now += seconds
        self._case.world(broken=broken, tick=self._tick).write(self._bench.path)
        try:
            sample = self.source.read()
        except SourceFailed as failure:
            self._state.mark_stale(self._now, failure.message)
            return failure
        assert decode_sample(encode_sample(sample)) == sample, "the sample does not survive its own encoding"
        self._state.take(sample)
        return sample

    def _while_it_hangs(self) -> Sample | SourceFailed | None:
        """A call of the whole driver's: the read hangs, as the poller's thread would, and what is shown ages."""
        came: list[Sample | SourceFailed | Exception] = []

        def read() -> None:
            try:
                came.append(self._look(broken=True))
            except Exception as error:  # noqa: BLE001 - told in the other thread
                came.append(error)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        thread.join(BLOCKED)
        if thread.is_alive():
            self._now += 5
            self._state.mark_stale(self._now, "no answer")
            self._shown("", age=self._state.sample is not None)
            self._found.met = True
            self._case.world(broken=False, tick=self._tick).write(self._bench.path)
            thread.join(10 * self._bench.patience)
        if not came:
            self._broken("it hangs on when the driver answers again")
            return None
        if isinstance(came[0], Exception) and not isinstance(came[0], SourceFailed):
            raise came[0]
        return came[0]

    # --- the rules -----------------------------------------------------------------------------------------------

    def _others(self, sample: Sample) -> None:
        if self._case.is_of_the_driver and self._case.what != IS_SLOW:
            return
        other = [gpu for gpu in sample.gpus if gpu.name == "NVIDIA B"]
        if not other or other[0].memory.used != used_at(self._tick):
            self._broken(f"the other card is not of this tick: {other[0].reason if other else 'it is missing'}")

    def _told(self, gpu: Gpu) -> None:
        usual = _figures(self._usual.gpus[0])
        for name, value in _figures(gpu).items():
            wanted, spoilt = usual[name], self._case.is_spoilt
            if value == wanted or (spoilt and value is not None and _possible(name, value)):
                continue
            reasons = (name, name.partition(".")[0])
            if value is None and (gpu.state != "ok" or any(reason in gpu.absent for reason in reasons)):
                if gpu.state != "ok" and not gpu.reason:
                    self._broken(f"{name} is not told, and no sentence says why")
                continue
            # Without the newer call what the driver keeps is in use too; the host's memory is measured another way.
            whole = (
                name == "memory.used"
                and "memory.reserved" in gpu.absent
                and value == sum(usual[f"memory.{part}"] or 0 for part in ("used", "reserved"))
            )
            if whole or (gpu.memory.unified and name.startswith("memory.")):
                continue
            if name in _MAY_BE_ANOTHER or (name == "processes" and (spoilt or self._may_lack(gpu, value, wanted))):
                continue
            self._broken(f"{name} is {value!r}, not {wanted!r}, and nothing says why")
        total = gpu.memory.total
        for row in gpu.processes:
            if row.pid <= 0 or (row.used_memory is not None and not is_possible("used", row.used_memory)):
                self._broken(f"an impossible process: {row.pid}, {row.used_memory}")
            if total and row.used_memory is not None and row.used_memory > total:
                self._broken(f"a process that is larger than its card: {row.used_memory}")

    def _may_lack(self, gpu: Gpu, value: Any, wanted: Any) -> bool:
        """Whether what is missing among the processes is said to be, or belongs to the instances as long as they are
        not known.
        """
        if "processes" in gpu.absent or gpu.state != "ok":
            return True
        silent = "processes.graphics" in gpu.absent or self._case.what == NOT_SUPPORTED
        needed = {pid: row for pid, row in wanted.items() if row[0] == "C" or not silent}
        return {*needed.items()} <= {*(value or {}).items()}

    def _close_look(self, sample: Sample) -> None:
        if self._case.what == HANGS:
            return  # it has a thread of its own, for which nobody waits
        for gpu in sample.gpus:
            for pid, used in self.source.look(gpu.uuid).items():
                if pid <= 0 or not is_possible("used", used):
                    self._broken(f"the close look has {used} bytes of {pid}")

    def _shown(self, sentence: str, *, age: bool = False) -> None:
        """What a person sees is text only, without a name of a class; a card that does not answer says why or since
        when.
        """
        view = self._state.view()
        lines = [*lines_of(GpuPanel(), view), *rows_of(view)]
        told = [sentence, *(f"{message} {hint}" for _, message, hint in problems_of(view))]
        for text in (*lines, *told):
            self._sentence(text, empty=True)
        for bar in view.bars:
            if bar.gpu.state != "ok" and not bar.gpu.reason and bar.age is None:
                self._broken(f"GPU {bar.gpu.index} has neither an age nor a sentence")
            if bar.age is not None and " ago" not in "\n".join(lines):
                self._broken("an age is not shown")
        if age and not all(bar.age is not None for bar in view.bars):
            self._broken("what is shown while nothing answers has no age")

    def _sentence(self, text: str, *, empty: bool = False) -> None:
        if not text.strip() and not empty:
            self._broken("an empty sentence")
        live, name = LIVE.search(text), CLASS_NAME.search(text)
        if live is not None:
            self._broken(f"{live[0]!r} reaches the terminal")
        if name is not None:
            self._broken(f"a class's name on the screen: {text.strip()}")

    def _broken(self, words: str) -> None:
        if words not in self._found.broken:
            self._found.broken.append(words)


# UNINITIALIZED, DRIVER_NOT_LOADED, LIB_RM_VERSION_MISMATCH: whichever call says so, no card can be asked any more.
_OF_THE_WHOLE_DRIVER = (1, 9, 18)
# Of an instance by its index: not supported, no permission, not found, no answer, a driver too old.
_THERE_IS_NONE = (3, 4, 6, 10, 13, 21, 25, 27)
# What these are without an answer is no value of a metric's: the name is then "GPU 0", and a card without a handle's
# list of instances has none.
_RATES = {row[0] for row in RATES}
_MAY_BE_ANOTHER = ("name", "uuid", "mig_used")


def _figures(gpu: Gpu) -> dict[str, Any]:
    # What passes a link a second is known after two looks, whatever was wrong between them.
    names = (*(name for name in METRICS if name not in _RATES), "name", "uuid", "mig_used")
    found: dict[str, Any] = {name: getattr(gpu, name) for name in names}
    found |= {f"memory.{name}": getattr(gpu.memory, name) for name in SIZES}
    # The driver's own peak is one source of a peak of three; where it is not told, no value is missing.
    found["processes"] = {row.pid: (row.type, row.used_memory) for row in gpu.processes} or None
    return found


def _possible(name: str, value: object) -> bool:
    if name.startswith("memory."):
        return isinstance(value, int) and is_possible("used", value)
    return is_possible(name, value)
