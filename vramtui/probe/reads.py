"""Count the lines at which a job on a simulated GPU reads what kernels would have computed, by the driver's calls."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from .socket_dir import OTHER_WAY

FOLDER = "VRAMTUI_DRIVER_REPORT"  # the environment's name for the folder of what is reported
ALL = "*"  # behind that file: all places were taken that there can be, as how many hold is not known
FOLLOWED, USES = "=", "?<!"  # behind it: a number whose uses are followed; and what became of it, by `values.py`
CONVOLUTION = (
    "shapes", "dtype", "itemsize", "stride", "padding", "dilation", "groups", "transposed", "channels_last",
    "gradients",
)  # fmt: skip
PROBE = "vramtui"  # instead of a file of torch's: a read of this package's own
_HERE = ("", 0, "", PROBE)  # what the probe itself read
_PROBE = os.path.dirname(os.path.abspath(__file__))
OWN = (_PROBE + os.sep, os.path.join(os.path.dirname(_PROBE), "dryrun") + os.sep)


class Reads:
    """Counts reads by their line; `count` is that of all of them, `own` that of those which are this package's."""

    def __init__(self, torch: Any) -> None:
        self.count = self.own = 0
        self._is_own = self._is_known = self.is_followed = self.is_compiled = False
        self.last = _HERE  # where the job has read last
        self._torch = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self._places: dict[tuple[str, int, str, str], int] = {}
        self._convolutions: dict[Any, tuple[str, int]] = {}
        self.misses_convolutions = False  # of compiled code, or cuDNN tries its kernels
        self._path = os.path.join(os.environ.get(FOLDER, ""), f"{os.getpid()}.reads")
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t)
        self._call = kind(self.read)  # which lives as long as the driver may call it
        self._known: Iterator[int] | None = None
        self._other_way = os.environ.get(OTHER_WAY)
        self._listen: Any = None

    def begin(self) -> None:
        """Be called by the driver, where it is loaded."""
        listen = getattr(ctypes.CDLL(None), "vramtui_listen_to_reads", None)
        if listen is not None:
            self._listen = listen
            listen(self._call)
            atexit.register(self.end)

    def end(self) -> None:
        """Be called no more, and write down what was counted."""
        if self._listen is not None:
            self._listen(None)
            self._listen = None
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

    def know_next(self, numbers: list[int]) -> None:
        """Let the whole numbers that are read next be these, by turns, which the host knows; none: no more."""
        self._known = itertools.cycle(numbers) if numbers else None

    @property
    def is_known_next(self) -> bool:
        """Return whether the host knows what is read next."""
        return self._known is not None

    def is_of_torch(self, frame: Any) -> bool:
        """Return whether a frame runs code of PyTorch's own."""
        return bool(frame.f_code.co_filename.startswith(self._torch))

    def count_here(self, *, takes_all: bool = False) -> None:
        """Count what the job asks at this moment as a read of its line.

        Args:
            takes_all: whether it is how many places hold, and gets as many as there can be.
        """
        self.count += 1
        self.own += self._is_own
        path, line, function, inside = self.last = _HERE if self._is_own else self._place()
        mark = FOLLOWED if self.is_followed and not self.is_compiled else ""
        self._note((path, line, function, inside + (ALL if takes_all else mark)))

    def use(self, place: tuple[str, int, str, str], use: int) -> None:
        """Note what the job does with a number that it read at a place."""
        self._note((*place[:3], place[3] + USES[use]))

    def goes_other_way(self, place: tuple[str, int, str, str]) -> bool:
        """Note a condition on what was read at a place, and return whether it goes the other way in this run."""
        self.use(place, 1)
        return f"{place[0]}:{place[1]}" == self._other_way

    def note_convolution(self, torch: Any, args: Any, out: Any) -> None:
        """Note a convolution of the job's: its workspace is another on the GPU. Of each kind the line is kept, and the
        most bytes that are allocated once its result is there.
        """
        tensor, weight, _, stride, padding, dilation, transposed, _, groups = args
        is_last = any(
            not one.is_contiguous() and one.dim() == 4 and one.is_contiguous(memory_format=torch.channels_last)
            for one in (tensor, weight)
        )
        shapes = tuple(tuple(one.shape) for one in (tensor, weight, out))
        sides = tuple(map(tuple, (stride, padding, dilation)))
        gradients = tuple(torch.is_grad_enabled() and one.requires_grad for one in (tensor, weight))
        kind = (shapes, str(tensor.dtype)[6:], tensor.element_size(), *sides, groups, transposed, is_last, gradients)
        line, before = self._convolutions.get(kind, ("", 0))
        in_use = torch.cuda.memory_stats_as_nested_dict(out.device)["allocated_bytes"]["all"]["current"]
        if not line:
            path, number, *_ = self._place()
            line = f"{os.path.basename(path)}:{number}"
        self._convolutions[kind] = line, max(before, in_use)
        if not before:
            self._write()

    def read(self, to: int | None, size: int) -> None:
        """Called by the driver: `size` bytes of what kernels would have computed were read `to` an address."""
        known = self._known if to and size in (1, 4, 8) else None
        if to and known is not None:
            number = 1 if size == 1 else next(known)  # a byte is a check, which holds
            ctypes.memmove(to, number.to_bytes(size, sys.byteorder), size)
            self._note(_HERE)
        elif self._is_known:
            self._note(_HERE)
        else:
            self.count_here()

    def _note(self, place: tuple[str, int, str, str]) -> None:
        times = self._places[place] = self._places.get(place, 0) + 1
        if times & (times - 1) == 0:  # a process may end without another word
            self._write()

    def frame_of_job(self) -> Any:
        """The innermost frame of this thread that runs the job's own code; None if there is none."""
        frame: Any = sys._getframe(1)  # noqa: SLF001 - the frames of this thread have no other name
        while frame is not None and frame.f_code.co_filename.startswith((self._torch, *OWN, "<")):
            frame = frame.f_back
        return frame

    def _place(self) -> tuple[str, int, str, str]:
        """File, line and function of the job's own code, and the innermost file of torch's where that is what reads."""
        frame: Any = sys._getframe(1).f_back  # noqa: SLF001 - the frames of this thread have no other name
        inside = ""
        while frame is not None:
            path = frame.f_code.co_filename
            if path.startswith(self._torch):
                inside = inside or path[len(self._torch) :]
            elif path.startswith(OWN):  # which calls PyTorch's own for the job
                inside = ""
            elif not path.startswith("<"):
                return os.path.abspath(path), frame.f_lineno, frame.f_code.co_name, inside
            frame = frame.f_back
        return "", 0, "", inside

    def _write(self) -> None:
        places = [[*place, times] for place, times in list(self._places.items())]
        known = {} if self.misses_convolutions else dict(self._convolutions)
        convolutions = [[*at, dict(zip(CONVOLUTION, kind))] for kind, at in known.items()]  # noqa: B905 - Python 3.8
        with contextlib.suppress(OSError):
            with open(self._path + ".new", "w", encoding="utf-8") as file:
                json.dump([places, convolutions], file)
            os.replace(self._path + ".new", self._path)
