"""Presets for processes that none matches, derived from the models they name; on a thread of its own, once for each.

A child with limits derives them: the files that a process names are another user's, and so are its sizes. It reads
them, and makes the estimate that this side is about to make. It has so much memory, so much of a processor for each
process, and so much time; where one of these ends it, a sentence says so, and this side has read nothing. It ends with
the one that asks.
"""

import contextlib
import json
import os
import re
import resource
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import Problem, Process, ProcessKey, Sample, process_key
from vramtui.core.schema.preset import PresetFile

MEMORY = 1 * GIB  # of address space: Python and what an estimate needs of it have 0.3
PROCESSOR = 3  # seconds for each process that is looked into
PATIENCE = 8.0  # seconds of any clock for each: others use the processor as well, and a folder may hang
# As `-m` would, but never from the current folder, which may hold anybody's files.
_START = f"import sys; del sys.path[0]; from {__name__} import answer_all; answer_all()"


class ConfinedError(UserError):
    """The child was ended by a limit, or ended by itself."""


class _Answer(msgspec.Struct):
    preset: PresetFile | None = None
    failure: str = ""


class ConfinedDerive:
    """Asks the child, which it starts where there is none.

    Args:
        patience: seconds that an answer may take.
    """

    __slots__ = ("_child", "_patience")

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, pid: int, command: str) -> PresetFile | None:
        """The preset that a process of this host amounts to; None where it names no model.

        Raises:
            ConfinedError: finding it took more than it may.
        """
        child = self._child = self._child or _started()
        question = json.dumps({"pid": pid, "command": command})  # in ASCII, whatever the command holds
        text = b""
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            child.stdin.write(question.encode() + b"\n")
            child.stdin.flush()
            text = self._line(child)
        if text.endswith(b"\n"):
            answer = msgspec.json.decode(text, type=_Answer)
            if answer.failure:
                raise ConfinedError(answer.failure)
            return answer.preset
        is_late = child.poll() is None and not _has_ended(child)
        self.close()
        why = f"{self._patience:.0f} s" if is_late else f"{PROCESSOR} s of a processor or {MEMORY // GIB} GiB of memory"
        raise ConfinedError(f"its model is not estimated: what pid {pid} names takes more than {why}")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.kill()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)

    def _line(self, child: "subprocess.Popen[bytes]") -> bytes:
        """What the child answers, to the end of its line; less where it ends or is late."""
        assert child.stdout is not None
        descriptor, until, text = child.stdout.fileno(), time.monotonic() + self._patience, b""
        poll = select.poll()  # `select` knows no descriptor beyond 1023
        poll.register(descriptor, select.POLLIN)
        while not text.endswith(b"\n") and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                piece = os.read(descriptor, 1 << 16)
                if not piece:
                    break
                text += piece
        return text


def _started() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - our own module, by this Python
        [sys.executable, "-c", _START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for this process
    )


def _has_ended(child: "subprocess.Popen[bytes]") -> bool:
    """Whether it ends within a moment: its output is closed before it can be waited for."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(0.2)
        return True
    return False


def answer_all() -> None:
    """Answer a line after another in the child, until there is none."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = MEMORY if most == resource.RLIM_INFINITY else min(MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, allowed))
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    for line in sys.stdin.buffer:
        question = json.loads(line)
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + PROCESSOR + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft if most == resource.RLIM_INFINITY else min(soft, most), most))
        sys.stdout.buffer.write(msgspec.json.encode(_answer(question["pid"], question["command"])) + b"\n")
        sys.stdout.buffer.flush()


def _answer(pid: int, command: str) -> _Answer:
    from vramtui.presets.importers.derived import derive  # noqa: PLC0415 - in the child alone

    try:
        offer = derive(pid, command)
        if offer is not None:
            _try_out(offer)
    except MemoryError:
        return _Answer(failure=f"its model is not estimated: what pid {pid} names takes more than {MEMORY // GIB} GiB")
    except Exception:  # noqa: BLE001 - files of any program: one that cannot be read names no model
        return _Answer()
    return _Answer(offer)


def _try_out(preset_file: PresetFile) -> None:
    """Make the estimate that whoever asks will make, so that it ends here where it does not end."""
    from vramtui.core.estimate.devices import card  # noqa: PLC0415 - in the child alone
    from vramtui.monitor.predictor import LazyDefault  # noqa: PLC0415 - in the child alone

    with contextlib.suppress(UserError):  # it is told where the estimate is asked for
        LazyDefault().estimate(preset_file.preset.workload, card("H100"))


Derive = Callable[[int, str], PresetFile | None]
_Job = tuple[int, float | None, str]
_FILE = re.compile(r"\.(?:ya?ml|json)\b")  # what training programs are configured by
KEPT = 1 << 15
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
        has_news: a preset was found since `beside` was last asked, so that it would say more.
    """

    __slots__ = (
        "_changed", "_confined", "_derive", "_is_running", "_known", "_wait", "_waiting", "has_news", "problems",
    )  # fmt: skip

    def __init__(self, derive: Derive | None = None, *, wait: bool = False) -> None:
        self._confined = ConfinedDerive()
        self._derive = derive or self._confined
        self._wait = wait
        self.problems: tuple[Problem, ...] = ()
        self.has_news = False
        self._known: Latest[_Job, PresetFile | None] = Latest(KEPT)
        # Those of the latest sample, in its order: what has gone is not looked into.
        self._waiting: dict[_Job, None] = {}
        self._changed = threading.Condition()
        self._is_running = False

    def with_derived(
        self, sample: Sample, matched: Mapping[ProcessKey, PresetFile], by_hand: Mapping[ProcessKey, str | None]
    ) -> Mapping[ProcessKey, PresetFile]:
        """`matched` and the derived preset of each process in `sample` that is neither in it nor in `by_hand`; or that
        is matched and names a file of its own, where more is known of the job with that file.
        """
        derived, waiting = {}, dict[_Job, None]()
        self.has_news = False
        for key, process in _processes(sample):
            first = matched.get(key)
            if not process.command or key in by_hand or (first is not None and not _may_say_more(first, process)):
                continue
            preset = self._preset((process.pid, process.started_at, process.command), process, waiting)
            if preset is not None and (first is None or len(preset.assumed) < len(first.assumed)):
                derived[key] = preset
        if self._wait:
            self._confined.close()  # no sample may follow
        else:
            self._ask(waiting)
        return {**derived, **{key: preset_file for key, preset_file in matched.items() if key not in derived}}

    def _preset(self, job: _Job, process: Process, waiting: dict[_Job, None]) -> PresetFile | None:
        """What is known of a job by now; where nothing is, it is put among those that are `waiting`."""
        if job not in self._known:
            if not self._wait:
                waiting[job] = None
                return None
            self._look(job)
        preset = self._known.get(job)
        if preset is not None:
            preset = self._known[job] = preset.as_run_under(process.runtime)
        return preset

    def _ask(self, waiting: dict[_Job, None]) -> None:
        """Have these looked into, and none that were asked for before."""
        with self._changed:
            self._waiting = waiting
            if waiting and not self._is_running:
                self._is_running = True
                threading.Thread(target=self._work, name="derive presets", daemon=True).start()
            self._changed.notify()

    def _next(self) -> _Job | None:
        """The next to look into; None where there was none for a while, and the thread that asks is to end."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, IDLE):
                self._is_running = False
                self._confined.close()
                return None
            job = next(iter(self._waiting))
            del self._waiting[job]
            return job

    def _work(self) -> None:
        """Until there is nothing to look for. A folder that hangs holds up this thread alone."""
        while (job := self._next()) is not None:
            if job in self._known:
                continue
            self._look(job)
            if self._known[job] is not None:
                self.has_news = True

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


def _processes(sample: Sample) -> Iterator[tuple[ProcessKey, Process]]:
    for gpu in sample.gpus:
        for process in gpu.processes:
            yield process_key(sample.host.name, gpu, process), process


def _may_say_more(preset: PresetFile, process: Process) -> bool:
    """Whether something is assumed of a matched job whose command line names a file that may say it."""
    return bool(preset.assumed and _FILE.search(process.command or ""))
