"""Presets derived from the models that unmatched processes name, once for each process, on a thread of its own.

A child process with limits reads the files, because they belong to other users, and makes the first estimate of them.
If it needs more memory, processor time or patience than it has, a problem says so. It ends with its parent.
"""

import contextlib
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.units import GIB
from vramtui.core.observation.matcher import ByHand, Matched
from vramtui.core.observation.readings import Problem, Process, ProcessKey, Sample, process_key
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    import subprocess

MEMORY = 1 * GIB  # of address space; Python and an estimate need 0.3
PROCESSOR = 3  # seconds for each process
PATIENCE = 8.0  # seconds of wall clock for each: others use the processor as well, and a folder may hang
# As `-m` would, but never from the current folder, which may hold anybody's files.
_START = (
    "import sys; del sys.path[0]; from vramtui.core.base.late import defer; defer(); "
    f"from {__name__} import answer_all; answer_all()"
)


class ConfinedError(UserError):
    """A limit ended the child, or it ended by itself."""


class _Answer(msgspec.Struct):
    preset: PresetFile | None = None
    failure: str = ""
    why: str = ""


class ConfinedDerive:
    """Derives presets in a child, which it starts when needed; an answer may take `patience` seconds."""

    __slots__ = ("_child", "_patience")

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None

    def __call__(self, pid: int, command: str) -> PresetFile | str:
        """Return the preset of a process of this host, or the reason why it has none. The child takes a tenth of a
        second to start: a command without names has no use for it, unless a model is in its folder.

        Raises:
            ConfinedError: it took more than the limits allow.
        """
        import json  # noqa: PLC0415 - only with the child
        import select  # noqa: PLC0415 - only with the child
        import subprocess  # noqa: PLC0415 - only with the child

        child = self._child = self._child or subprocess.Popen(  # noqa: S603 - our own module, by this Python
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for this process
        )
        question = json.dumps({"pid": pid, "command": command})  # in ASCII, whatever the command holds
        text = b""
        with contextlib.suppress(OSError):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(question.encode() + b"\n")
            child.stdin.flush()
            descriptor, until = child.stdout.fileno(), time.monotonic() + self._patience
            poll = select.poll()  # `select` does not take a descriptor beyond 1023
            poll.register(descriptor, select.POLLIN)
            while not text.endswith(b"\n") and (left := until - time.monotonic()) > 0:
                if poll.poll(left * 1000):
                    piece = os.read(descriptor, 1 << 16)
                    if not piece:
                        break
                    text += piece
        if text.endswith(b"\n"):
            answer = msgspec.json.decode(text, type=_Answer)
            if answer.failure:
                raise ConfinedError(answer.failure)
            return answer.preset or answer.why
        is_late = child.poll() is None
        if is_late:  # its output closes a moment before it can be waited for
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.2)
                is_late = False
        self.close()
        why = f"{self._patience:.0f} s" if is_late else f"{PROCESSOR} s of a processor or {MEMORY // GIB} GiB of memory"
        raise ConfinedError(f"its model is not estimated: what pid {pid} names takes more than {why}")

    def close(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            child.kill()
        import subprocess  # noqa: PLC0415 - only with the child

        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0)


def answer_all() -> None:
    """Answer one line after another in the child, until the input ends."""
    import json  # noqa: PLC0415 - only in the child
    import resource  # noqa: PLC0415 - only in the child

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
    from vramtui.core.estimate.devices import card  # noqa: PLC0415 - only in the child
    from vramtui.monitor.predictor import LazyDefault  # noqa: PLC0415 - only in the child
    from vramtui.presets.importers.derived import derive, why_none  # noqa: PLC0415 - only in the child

    try:
        offer = derive(pid, command)
        if offer is not None:  # estimate it as the parent will: if that does not end, it ends here
            with contextlib.suppress(UserError):  # the parent's own estimate reports it
                LazyDefault().estimate(offer.preset.workload, card("H100"))
    except MemoryError:
        return _Answer(failure=f"its model is not estimated: what pid {pid} names takes more than {MEMORY // GIB} GiB")
    except Exception:  # noqa: BLE001 - files of any program: one that cannot be read names no model
        return _Answer(why="its model's files cannot be read")
    return _Answer(offer, why="" if offer is not None else why_none(pid, command))


_Job = tuple[int, float | None, str]
_FILE = re.compile(r"\.(?:ya?ml|json)\b")  # configuration files of training programs
_PROGRAM = re.compile(r"(?!.*vllm)[\w./-]+", re.IGNORECASE)
_NAMELESS = re.compile(r"-[\w-]+(?:=[\d.,:e+-]*)?|[\d.,:e+-]+|(?!.*vllm|train_gpt2\.)[\w-]+\.py", re.IGNORECASE)
KEPT = 1 << 15
FOLDER_ANSWERS = 0.5  # seconds
IDLE = 0.2  # seconds that the thread waits for more, and its child takes 25 MB
MOST_PROBLEMS = 20
MOST_WAITS = 2  # failures after which a command that waits leaves the other processes out
HINT = "m gives it a preset."


def _is_nameless(command: str) -> bool:
    """Return whether a command has only a script, flags and numbers."""
    program, *words = command.split() or [""]
    return ".py" in command and bool(_PROGRAM.fullmatch(program)) and all(map(_NAMELESS.fullmatch, words))


def _without_model(jobs: Collection[_Job]) -> list[_Job]:
    """Those of the jobs that name no model, neither in their command nor by a `config.json` in their folder; a folder
    that hangs, as those looked at after it, may have one.
    """
    nameless, without = [job for job in jobs if _is_nameless(job[2])], list[_Job]()

    def look() -> None:
        # False in another user's folder, and `exists` of os.path takes half as long again.
        without.extend(job for job in nameless if not os.access(f"/proc/{job[0]}/cwd/config.json", os.F_OK))

    if nameless:
        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        thread.join(FOLDER_ANSWERS)
    return list(without)


class DerivedPresets:
    """Answers with the presets known by now, and looks for the others in the background.

    Attributes:
        problems: processes whose models took more than the limits allow.
        reasons: why a process has no preset, by pid, start and command.
        has_news: a preset was found since the latest call of `with_derived`.
        waiting: processes whose models are looked for, in the order of the latest sample, without exited ones.
    """

    __slots__ = (
        "_changed", "_confined", "_derive", "_is_running", "_known", "_tried", "_wait", "has_news", "problems",
        "reasons", "waiting",
    )  # fmt: skip

    def __init__(
        self, derive: Callable[[int, str], PresetFile | str | None] | None = None, *, wait: bool = False
    ) -> None:
        self._confined = ConfinedDerive()
        self._derive = derive or self._confined
        self._wait = wait
        self.problems: tuple[Problem, ...] = ()
        self.has_news = False
        self._known: Latest[_Job, PresetFile | None] = Latest(KEPT)
        self._tried = set[_Job]()  # of those that wait, whether they name a model
        self.reasons: Latest[_Job, str] = Latest(KEPT)
        self.waiting: dict[_Job, None] = {}
        self._changed = threading.Condition()
        self._is_running = False

    def with_derived(self, sample: Sample, matched: Matched, by_hand: ByHand) -> Matched:
        """Return `matched` with the derived preset of each process in `sample` that neither it nor `by_hand` has.

        A matched process whose command line names a file gets one too, if less of the job is assumed with that file.
        """
        derived, waiting, asked = {}, dict[_Job, None](), list[tuple[ProcessKey, PresetFile | None, _Job, Process]]()
        self.has_news = False
        for gpu in sample.gpus:
            for process in gpu.facts:
                key = process_key(sample.host.name, gpu, process)
                first = matched.get(key)
                if not process.command or key in by_hand:
                    continue
                if first is not None and not (first.assumed and _FILE.search(process.command)):
                    continue
                job = (process.pid, process.started_at, process.command)
                if job not in self._known:
                    waiting[job] = None
                if self._wait or self._known.get(job) is not None:  # few of a large host's
                    asked.append((key, first, job, process))
        if self._wait:
            self._answer_nameless(waiting)
            for job in [job for job in waiting if job not in self._known]:
                self._look(job)
        for key, first, job, process in asked:
            if (preset := self._known.get(job)) is not None:
                preset = self._known[job] = preset.as_run_under(process.runtime)
                if first is None or len(preset.assumed) < len(first.assumed):
                    derived[key] = preset
        if self._wait:
            self._confined.close()  # no sample may follow
        else:
            with self._changed:
                self.waiting = waiting
                if waiting and not self._is_running:
                    self._is_running = True
                    threading.Thread(target=self._work, name="derive presets", daemon=True).start()
                self._changed.notify()
        return {**derived, **{key: preset_file for key, preset_file in matched.items() if key not in derived}}

    def _work(self) -> None:
        """Look until no process was waiting for a while. A folder that hangs holds up only this thread."""
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: self.waiting, IDLE):
                    self._is_running = False
                    self._tried.clear()
                    self._confined.close()
                    return
                new = [job for job in self.waiting if job not in self._tried]
            self._answer_nameless(new)
            if (named := next((job for job in self.waiting if job not in self._known), None)) is not None:
                self._look(named)
                self.has_news |= self._known[named] is not None
            with self._changed:
                self.waiting = {job: None for job in self.waiting if job not in self._known}

    def _answer_nameless(self, jobs: Collection[_Job]) -> None:
        self._tried.update(jobs)
        self._known.update(dict.fromkeys(_without_model(jobs)))

    def _look(self, job: _Job) -> None:
        pid, _, command = job
        if self._wait and len(self.problems) >= MOST_WAITS:
            return
        try:
            answer = self._derive(pid, command or "")
            self._known[job] = None if isinstance(answer, str) else answer
            if isinstance(answer, str) and answer:
                self.reasons[job] = answer
        except ConfinedError as error:
            self._known[job], self.reasons[job] = None, str(error)
            if len(self.problems) < MOST_PROBLEMS:
                self.problems = (*self.problems, Problem(where=f"pid {pid}", message=f"{error}.", hint=HINT))
        except Exception:  # noqa: BLE001 - files of any program: one that cannot be read names no model
            self._known[job] = None
