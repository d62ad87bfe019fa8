"""Count the lines at which a job on a simulated GPU reads what kernels would have computed, by the driver's calls."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import re
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

from .socket_dir import OTHER_NUMBERS, OTHER_WAY, REPORTS

ALL = "*"  # behind that file: all places were taken that there can be, as how many hold is not known
# Behind it: a number whose uses are followed; behind where it was used, how (`values.py`); what no run varies.
FOLLOWED, USES = "=", "?<!~^"
# Numbers of cuDNN's: operations of convolutions, a graph, a plan, the first part of a convolution, a plan's workspace.
OPERATIONS, GRAPH, PLAN, FIRST_PART, WORKSPACE = (10, 11, 12), 15, 5, 702, 402
EMPTY = "empty"  # instead of other numbers: no unknown mask holds anywhere
WORKSPACES = "workspaces"  # a file next to the reports: bytes that convolutions take on a card
LISTS = {most: ctypes.c_int64 * most for most in (1, 8)}  # a new type refers to itself
ENGINE = "autograd/graph.py"  # whose threads have no frames: who runs it stands for them
TIMING = "_inductor/runtime/"  # whose reads are its own: copies of what a kernel changes while it is timed
PROBE = "vramtui"  # instead of a file of torch's: a read of this package's own
PACKAGES = "-packages/"
# Code of libraries that makes scores of what it reads, or has the job's `compute_metrics` make them, and nothing else.
SCORING = re.compile(r"-packages/(?:sentence_transformers/(?:\w+/)?evaluation/|transformers/trainer\w*\.py:evaluate$)")
MOST_TURNS = 64  # of a loop that ends by an unknown value: more than fixed points and line searches mostly take
_HERE = ("", 0, "", PROBE)  # what the probe itself read
_PROBE = os.path.dirname(os.path.abspath(__file__))
OWN = (_PROBE + os.sep, os.path.join(os.path.dirname(_PROBE), "dryrun") + os.sep)


class Reads:
    """Counts reads by their line; `count` is that of all of them, `own` that of those which are this package's."""

    def __init__(self, torch: Any) -> None:
        self.count = self.own = 0
        self._is_own = self._is_known = self.is_followed = self.is_compiled = False
        self.last = _HERE  # where the job has read last
        self._torch, self._modules = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep, torch
        self._places: dict[tuple[str, int, str, str], int] = {}
        self.workspaces: set[int] = set()  # addresses of those of convolutions
        self._on_card: dict[str, int] = {}  # their bytes
        self._threads: dict[int, dict[str, Any]] = {}  # what each makes and runs
        self._plans: dict[int, str] = {}  # of convolutions
        self._get: Any = None
        self._lines: dict[str, str] = {}
        self._convolutions: dict[tuple[str, str], tuple[int, int]] = {}
        self._folder = os.environ.get(REPORTS, "")
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
        self._call = kind(self.read)  # which lives as long as the driver may call it
        self._hear = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self.hear)
        self.known_next: Iterator[int] | None = None
        every, _, self._other_way = os.environ.get(OTHER_WAY, "1:").partition(":")
        self._every, self._loop = int(every), (0, False, 0)  # a frame, what it was answered first, and how often
        self.other_numbers, *self._not_varied = os.environ.get(OTHER_NUMBERS, "").split(":")
        self.holds = self.other_numbers != EMPTY
        self.other_numbers *= self.holds
        self._as_it_is: Any = None  # where the job read last what was not varied so far
        self._listen: Any = None

    def begin(self) -> None:
        """Be called by the driver, where it is loaded."""
        listen = getattr(ctypes.CDLL(None), "vramtui_listen_to_reads", None)
        if listen is not None:
            self._listen = listen
            listen(self._call)
            ctypes.CDLL(None).vramtui_listen_to_convolutions(self._hear)
            with contextlib.suppress(OSError), open(os.path.join(os.environ[REPORTS], WORKSPACES)) as file:
                self._on_card = {key.strip(): int(size) for size, _, key in (line.partition(" ") for line in file)}
            atexit.register(self.end)
            # In a forked process what was counted is the other's.
            os.register_at_fork(after_in_child=lambda: vars(self).update(_places={}, _convolutions={}, _threads={}))

    def end(self) -> None:
        """Be called no more, and write down what was counted."""
        if self._listen is not None:
            self._listen(None)
            self._listen = None
            self._note_as_it_is()
            self._write()

    def bring(self, copy: Any) -> tuple[Any, bool]:
        """Bring to the host what `copy()` copies, and whether the host had written all of it; no line is counted."""
        before, self._is_own = self.own, True
        try:
            return copy(), self.own == before
        finally:
            self._is_own = False

    @contextlib.contextmanager
    def knowing(self) -> Iterator[None]:
        """Let what kernels read be known: it is computed as well."""
        before, self._is_known = self._is_known, True
        try:
            yield
        finally:
            self._is_known = before

    @contextlib.contextmanager
    def know_next(self, numbers: list[int]) -> Iterator[None]:
        """Let the whole numbers that are read be these, by turns, which the host knows; if none, they are not known."""
        self.known_next = itertools.cycle(numbers) if numbers else None
        try:
            yield
        finally:
            self.known_next = None

    def is_of_torch(self, frame: Any) -> bool:
        return bool(frame.f_code.co_filename.startswith(self._torch))

    def count_here(self, *, takes_all: bool = False) -> None:
        """Count what the job asks at this moment as a read of its line; it may get as many places as there can be."""
        self.count += 1
        self.own += self._is_own
        path, line, function, inside = _HERE if self._is_own else self._place()
        self.last = path, line, function, inside
        mark = FOLLOWED if self.is_followed and not self.is_compiled else ""
        self._note((path, line, function, inside + (ALL if takes_all else mark)))

    def use(self, place: tuple[str, int, str, str], use: int, frame: Any = None) -> None:
        where = "" if frame is None else f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno}"
        self._note((*place[:3], where + USES[use]))

    def truth_in_this_run(self, place: tuple[str, int, str, str], truth: bool, asking: Any, used: Any = None) -> bool:
        """Note a condition on what was read at a place, and return its truth in this run for the frame that asks."""
        self.use(place, 1, used)
        if f"{place[0]}:{place[1]}" != self._other_way:
            return truth
        frame, first, asked = self._loop if self._every or self._loop[0] == id(asking) else (id(asking), truth, 0)
        is_over = not self._every and asked == MOST_TURNS
        self._loop = 0 if is_over else frame, first, asked + 1
        return truth != (asked % self._every == 0) if self._every else first != is_over

    def read(self, to: int | None, size: int) -> None:
        """Called by the driver: `size` bytes of what kernels would have computed were read `to` an address."""
        known = self.known_next if to and size in (1, 4, 8) else None
        if to and known is not None:
            number = 1 if size == 1 else next(known)  # a byte is a check, which holds
            ctypes.memmove(to, number.to_bytes(size, sys.byteorder), size)
            self._note(_HERE)
        elif self._is_known:
            self._note(_HERE)
        else:
            self.count_here()
            self._note_as_it_is()
            self._as_it_is = self.last if self.other_numbers else None
            if to and self.other_numbers and self.last[3] == ENGINE:  # where no operator is followed
                self._as_it_is = None
                numbers = struct.pack("=f", 0.02 if self.other_numbers.startswith("falling") else 12.0) * (1 << 18)
                for at in range(0, size, len(numbers)):
                    ctypes.memmove(to + at, numbers, min(len(numbers), size - at))

    def varies_here(self) -> bool:
        """Return whether what the job reads at this moment is varied in this run."""
        self._as_it_is = None
        return not self._place()[3].startswith(tuple(self._not_varied))

    def _note_as_it_is(self) -> None:
        if self._as_it_is is not None:
            self.use(self._as_it_is, 4)

    def hear(self, event: int, what: int, pack: int | None) -> int:
        """Called by the driver by cuDNN's numbers (cudnn_graph.h of 9): such a descriptor is made, or is that part of a
        convolution; a plan's workspace is asked for, or it runs. With `torch.backends.cudnn.benchmark` a thread runs
        all plans of a new graph first, each in the same workspace (cudnn/Conv_v8.cpp, 2.13).
        """
        thread = self._threads.setdefault(threading.get_ident(), {"parts": {}, "graph": "", "is_new": False})
        if event in OPERATIONS:
            thread["parts"] = {0: event}
        elif event >= FIRST_PART:
            names = ((102, 3), (103, 3), (105, 3)) if event % 6 == 0 else ((901, 1), (902, 3), (903, 3))
            thread["parts"][1 + event % 6] = [self._numbers(what, name, of, 1 if of == 1 else 8) for name, of in names]
        elif event == GRAPH:
            parts = [thread["parts"].get(at) for at in range(5)]
            thread.update(parts={}, graph="" if None in parts else json.dumps(parts), is_new=True)
        elif event == PLAN:
            self._plans[what] = thread["graph"]
        elif event == WORKSPACE:
            return self._on_card.get(self._plans.get(what, ""), -1)
        elif not event and self._plans.get(what):
            self._convolve(
                thread, self._plans[what], self._numbers(what, WORKSPACE)[0], self._numbers(pack, 1003, 6)[0]
            )
        return -1

    def _numbers(self, what: int | None, name: int, of: int = 3, most: int = 1) -> list[int]:
        """At most so many numbers of a descriptor's attribute, of a type of cuDNN's."""
        if self._get is None:
            self._get = ctypes.CDLL("libcudnn.so.9", mode=os.RTLD_NOLOAD | os.RTLD_NOW).cudnnBackendGetAttribute
        count, numbers = ctypes.c_int64(), LISTS[most]()
        self._get(ctypes.c_void_p(what), name, of, ctypes.c_int64(most), ctypes.byref(count), numbers)
        return numbers[: most if most == 1 else count.value]

    def _convolve(self, thread: dict[str, Any], key: str, size: int, address: int) -> None:
        torch, size = self._modules, self._on_card.get(key, size)
        in_use = torch._C._cuda_memoryStats(torch._C._cuda_getDevice())["allocated_bytes"]["all"]  # noqa: SLF001 - fast
        running = key, address, in_use["current"]
        if thread.get("running") != running:
            self._note_convolution(thread)
            cudnn, mode = torch.backends.cudnn, "chosen"
            if cudnn.benchmark:
                mode = "trial" if thread["is_new"] else "tried"
            elif cudnn.deterministic or torch.are_deterministic_algorithms_enabled() or not cudnn.allow_tf32:
                mode = "limited"
            thread.update(running=running, size=0, mode=mode, is_new=False)
        thread["size"] = max(thread["size"], size)
        self.workspaces.add(address)
        path, line, *_ = self._place()  # a thread of autograd has none
        if path:
            self._lines.setdefault(key.partition(",")[2], f"{os.path.basename(path)}:{line}")

    def _note_convolution(self, thread: dict[str, Any]) -> None:
        running = thread.pop("running", None)
        if running is not None:
            one, taken = (running[0], thread["mode"]), -(-thread["size"] // 512) * 512
            known = self._convolutions.get(one)
            self._convolutions[one] = max(known or (0, 0), (running[2] - taken, taken))
            if known is None:
                self._write()

    def _note(self, place: tuple[str, int, str, str]) -> None:
        times = self._places[place] = self._places.get(place, 0) + 1
        if times & (times - 1) == 0:  # a process may end without another word
            self._write()

    def _place(self) -> tuple[str, int, str, str]:
        """File, line and function of the job's own code, and the innermost file of torch's if that is what reads."""
        frame: Any = sys._getframe(1).f_back  # noqa: SLF001 - the frames of this thread have no other name
        inside, runs = "", frame.f_back is None  # a thread of autograd has no more, and who runs it waits in another
        if runs:
            all_frames = sys._current_frames  # noqa: SLF001 - as above; a local of what it gives refers to this frame
            frame = next((one for one in all_frames().values() if one.f_code.co_name == "_engine_run_backward"), None)
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(self._torch):
                name = path[len(self._torch) :]
                inside = name if name.startswith(TIMING) else inside or name
            elif path.startswith(OWN):  # which calls PyTorch's own for the job
                inside *= inside.startswith(TIMING)
            elif not path.startswith("<"):
                place = os.path.abspath(path), frame.f_lineno, frame.f_code.co_name
                while PACKAGES in path and frame is not None:
                    inside = PROBE if SCORING.search(f"{frame.f_code.co_filename}:{frame.f_code.co_name}") else inside
                    frame = frame.f_back
                return (*place, ENGINE if runs else inside)
            frame = frame.f_back
        return "", 0, "", inside

    def _write(self) -> None:
        places = [[*place, times] for place, times in list(self._places.items())]
        for thread in list(self._threads.values()):
            self._note_convolution(thread)
        known = list(self._convolutions.items())
        convolutions = [[self._lines.get(one[0].partition(",")[2], ""), *one, *sizes] for one, sizes in known]
        path = os.path.join(self._folder, f"{os.getpid()}.reads")
        with contextlib.suppress(OSError):
            with open(path + ".new", "w", encoding="utf-8") as file:
                file.write(json.dumps([places, convolutions]))
            os.replace(path + ".new", path)
