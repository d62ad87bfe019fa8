"""Values of fake tensors: known ones as in both engines (`dryrun/values.py`), and what stands for unknown ones.

Libraries branch on values: counters of optimizers, position ids, attention masks, random orders of samples. An
unknown number is one (so that a loss can be divided by and its logarithm taken) or zero, numbers that PyTorch draws are
the host's, and places are an order. All of these are guesses: reading one is noted with its line, and none tells a size
without a note.
"""

import contextlib
import functools
import itertools
import sys
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.reads import HEALTHY
from vramtui.dryrun.values import (
    COMPARED,
    GUESS,
    ORDER,
    SIZED,
    OperatorFacts,
    OtherNumbers,
    UnknownError,
    Values,
    note_uses_of,
)
from vramtui.probe import guards
from vramtui.probe.peak import is_own
from vramtui.probe.reads import EMPTY, MOST_TURNS, OWN

NOTE = (
    "the loop at {} ends at a value that is not computed here: it was ended after some {} rounds; what each "
    "round keeps counts so often"
)
_TO_COPY = torch.ops.aten._to_copy
_TORCH = str(Path(torch.__file__).parent)
MOST_PLACES = 1 << 16  # whole numbers of a tensor that are drawn or are places; of fractions one is drawn


@contextlib.contextmanager
def plainly() -> Any:
    """Leave out dispatch and the code's own modes: a default device would make tensors on a real GPU."""
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        yield


class FakeValues(Values):
    """Values of one session's fake tensors, and the engine that `Values.follow` asks."""

    def __init__(self, memory: SimulatedMemory, other_numbers: str = "") -> None:
        super().__init__(torch, lambda tensor: isinstance(tensor, FakeTensor))
        self.holds = other_numbers != EMPTY
        self.others = OtherNumbers(torch, other_numbers) if other_numbers and self.holds else None
        self.varies = self.others is not None
        self.falls = self.others is not None and self.others.falls  # where guessed conditions go the other way
        self._memory = memory
        self._turned = itertools.cycle((0, 1 << 20, -(1 << 20)))  # numbers that may end a loop
        self.knowing = contextlib.nullcontext
        self._is_varied = False  # whether other numbers are given for the last read
        self.noted, self._use = "", COMPARED  # the line of the last read, and what its number is used for

    def is_plain(self, one: Any) -> bool:
        return one.layout is torch.strided if isinstance(one, FakeTensor) else super().is_plain(one)

    clear = load = staticmethod(lambda *_given: None)  # no memory holds a value

    def vary(self, one: Any) -> Any:
        """Write other numbers into a tensor that is none of the trace's, whose own are varied where they are read."""
        if self.others is not None and isinstance(one, torch.Tensor) and not isinstance(one, FakeTensor):
            self.others.fill(one)
        return one

    def note(self, *, takes_all: bool = False) -> None:  # noqa: ARG002 - the bound is noted where the size is made
        frame: Any = sys._getframe(1)
        inside = ""
        while frame is not None and not is_own(frame.f_code.co_filename):
            path = frame.f_code.co_filename
            inside = inside or (path[len(_TORCH) + 1 :] if path.startswith(_TORCH) else "")
            frame = frame.f_back
        line = self._memory.user_line()
        self.noted = line
        self._memory.guesses_read[line] = self._memory.guesses_read.get(line) or inside
        self._is_varied = self.varies and not inside.startswith(HEALTHY)
        self.use(line, self._use)

    def note_size(self) -> None:
        self.use(self.noted, SIZED)

    def use(self, line: str, use: int, frame: Any = None) -> None:
        where = "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self._memory.guess_uses.setdefault(line, set()).add((use, where))

    def follow_number(self, plain: Any, tensor: Any) -> Any:
        """Return the number of a tensor; one that was read of a guess notes what the code does with it."""
        if not isinstance(tensor, FakeTensor) and not self.is_guess(tensor):
            return plain(tensor)
        self.noted, self._use = "", 0 if tensor.is_floating_point() else COMPARED
        try:
            number = plain(tensor)
        finally:
            self._use = COMPARED
        if not self.noted or type(number) is not float:
            return number

        def way(frame: Any, answer: bool, *, can_turn: bool) -> bool:  # noqa: ARG001 - engine cuda's
            known = guards.way_of(frame, is_torch=frame.f_code.co_filename.startswith(_TORCH))
            return answer if known is None else known[0] != (known[1] and self.falls)

        return note_uses_of(number, way, functools.partial(self.use, self.noted))

    def answer(self, number: Any) -> Any:
        """Return what the code reads of a guess: another number once a loop has waited long enough for one."""
        self.note()
        if self.others is not None and self._is_varied:
            number = self.others.number(number)
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((_TORCH, *OWN)):
            frame = frame.f_back
        path = "" if frame is None else frame.f_code.co_filename
        if not guards.loop_lines(path).get(frame.f_lineno if path else 0) or not guards.TURNS.are_over(frame):
            return number
        self._memory.warn(NOTE.format(f"{path}:{frame.f_lineno}", MOST_TURNS))
        return not number if isinstance(number, bool) else type(number)(next(self._turned))

    def item(self, tensor: Any) -> Any:
        value = self.value_of(tensor, or_guess=True)
        with torch._C._DisableTorchDispatch():
            number = (default(tensor.dtype) if value is None else value).item()
        return self.answer(number) if value is None or self.is_guess(tensor) else number

    def array_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the host with the values of `tensor`, or what stands for them."""
        if not isinstance(tensor, FakeTensor):
            return tensor
        with plainly():
            value = self.value_of(tensor, or_guess=True)
            if self.others is not None and self._is_varied and (value is None or self.is_guess(tensor)):
                self.others.fill(value := torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"))
            return default(tensor.dtype).expand(tensor.shape) if value is None else value

    def _guess(self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, out: Any) -> None:
        super()._guess(op, facts, args, kwargs, out)
        outs = out if isinstance(out, (list, tuple)) else (out,)
        drawn: Any = None
        most = max(
            (one.numel() << 16 * one.is_floating_point() for one in outs if isinstance(one, torch.Tensor)), default=0
        )
        if torch.Tag.nondeterministic_seeded in op.tags and not facts.written and most <= MOST_PLACES:
            with contextlib.suppress(UnknownError):
                drawn = self.compute(op, args, kwargs)[0]
                drawn = drawn if isinstance(drawn, (list, tuple)) else (drawn,)
        for at, one in enumerate(outs):
            if not isinstance(one, FakeTensor) or not self.is_plain(one) or self.entry_of(one) is not None:
                continue
            value = None if facts.written or drawn else _places(op, args, kwargs, one, at)
            value = drawn[at] if drawn else value
            if value is not None and value.dtype is one.dtype and value.shape == one.shape:
                self.put(one, value, is_guess=ORDER, is_new=True)
            elif one.numel() == 1:
                self.fill(one, int(one.dtype.is_floating_point or one.dtype.is_complex), is_guess=GUESS)


def default(dtype: torch.dtype) -> torch.Tensor:
    return torch.full((), int(dtype.is_floating_point or dtype.is_complex), dtype=dtype)


def _places(op: Any, args: Any, kwargs: Any, one: torch.Tensor, at: int) -> torch.Tensor | None:
    """An order for whole numbers that an operator makes of fractions, or as its second result: they are places."""
    first = args[0] if args else None
    if one.dtype is not torch.int64 or not isinstance(first, torch.Tensor) or not 0 < one.numel() <= MOST_PLACES:
        return None
    if op.overloadpacket is _TO_COPY or not (first.is_floating_point() or at == 1) or not first.dim():
        return None
    place = next((i for i, argument in enumerate(op._schema.arguments) if argument.name == "dim"), None)
    dim: Any = -1
    if place is not None:
        dim = args[place] if place < len(args) else kwargs.get("dim", op._schema.arguments[place].default_value)
    with torch._C._DisableTorchDispatch():
        if dim is not None and one.dim() == first.dim():
            shape = [-1 if i == dim % one.dim() else 1 for i in range(one.dim())]
            return torch.arange(one.shape[dim]).view(shape).expand(one.shape)
        return (torch.arange(one.numel()) % max(first.numel() if dim is None else first.shape[dim], 1)).view(one.shape)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let tensors be read: printed, formatted, listed, given to NumPy, pickled."""
    values: FakeValues = memory.values
    plain_list = torch.Tensor.tolist

    def read(tensor: torch.Tensor) -> torch.Tensor:
        if values.value_of(tensor) is None:
            values.note()
        return values.array_of(tensor)

    @patches.around(torch.Tensor, "numpy")
    def numpy(plain: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        value = read(tensor)
        if value is tensor:
            return plain(tensor, *args, **kwargs)
        with plainly():
            return plain(value.clone())  # numpy writes where it likes

    def array(tensor: torch.Tensor, dtype: Any = None, **_kwargs: Any) -> Any:
        import numpy as np  # noqa: PLC0415 - PyTorch runs without it, and only it calls this

        return np.asarray(tensor.detach().numpy(), dtype=dtype)

    def tolist(tensor: torch.Tensor) -> Any:
        value = read(tensor)
        with plainly():
            return plain_list(value)

    def formatted(tensor: torch.Tensor, format_spec: str) -> str:
        return format(tensor.item() if tensor.dim() == 0 else str(tensor), format_spec)

    @patches.around(torch.Tensor, "__repr__")
    def show(plain: Any, tensor: torch.Tensor, **kwargs: Any) -> str:
        if not isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            return str(plain(tensor, **kwargs))
        value = values.array_of(tensor)
        with plainly():
            text = str(plain(value, **kwargs))
        return f"{text[:-1]}, device='cuda:0')" if is_sim(tensor) else text

    @patches.around(torch.Tensor, "__bool__")
    def truth(plain: Any, tensor: torch.Tensor) -> bool:
        """Return the truth of a known value, else the one by which a healthy job goes on and does its work."""
        share = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
        is_fake = isinstance(share, FakeTensor) and share.numel() == 1
        if not is_fake or values.value_of(share, or_guess=not values.holds) is not None:
            return bool(plain(tensor))
        frame = sys._getframe(2)
        how = {"is_torch": frame.f_code.co_filename.startswith(_TORCH), "goes_other_way": values.falls}
        return guards.truth_of(frame, lambda: plain(tensor), values.note, **how)

    @patches.around(torch.Tensor, "__reduce_ex__")
    def reduce(plain: Any, tensor: torch.Tensor, proto: Any) -> Any:
        """Let a pickled tensor without values come back as one of its kind."""
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, proto)
        layout = (tuple(tensor.shape), tensor.stride())
        kind = {"dtype": tensor.dtype, "device": str(tensor.device), "requires_grad": tensor.requires_grad}
        return _rebuilt, (layout, kind, isinstance(tensor, torch.nn.Parameter))

    patches.around(torch.Tensor, "item")(values.follow_number)
    patches.set(torch.Tensor, "__str__", torch.Tensor.__repr__)
    for kind in (torch.Tensor, FakeTensor):  # which has one of its own that reads place by place
        patches.set(kind, "tolist", tolist)
    for name, value in (("__array__", array), ("__format__", formatted), ("share_memory_", lambda tensor: tensor)):
        patches.set(torch.Tensor, name, value)


def _rebuilt(layout: tuple[Any, Any], kind: dict[str, Any], parameter: bool) -> torch.Tensor:
    tensor = torch.empty_strided(*layout, **kind)
    return torch.nn.Parameter(tensor.detach(), requires_grad=kind["requires_grad"]) if parameter else tensor
