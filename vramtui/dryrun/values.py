"""Values of small tensors whose operators compute nothing: on a simulated GPU, or as fake tensors.

A value is known if it came from the host or follows from known values. It is computed on the CPU by the same operator,
so no operator is listed here. A mirror on the CPU belongs to a storage: all views share it, and a write through one is
seen through all. What is unknown stays unknown: its mirror is dropped by whatever writes into the storage.

An unknown mask has a guess: as many places hold as there can be. So have the places of the largest numbers of a row.
Checks of numbers hold as in a healthy job. What follows from guesses is a guess. A tensor on the host that came from an
unknown one is marked, so that what the host makes of it is a guess too.

This module is loaded into the job's process and by any release of PyTorch: it imports the standard library only.
"""

from __future__ import annotations

import contextlib
import math
import sys
from typing import Any, NamedTuple

MOST = 1 << 20  # numbers of a tensor that the CPU computes with
MOST_FILLED = 1 << 26  # numbers of a tensor that are all the same
MOST_LOADED = 8  # tensors given to an operator
GUESS, ORDER, BLANK, PLACES, ROWS, ZERO = 1, 2, 4, 8, 16, 32
# Numbers of a tensor on the host whose memory comes from the kernel, which keeps no page of it before it is written.
LARGE = 1 << 23
DRAWN = 1 << 30  # numbers that the host draws before it leaves large tensors blank: random numbers after them differ
SWEEP, SWEPT = 1024, 1 << 27  # new storages, and their bytes, after which those that are gone are forgotten
# What PyTorch calls the operators that depend on no value.
READING = "_local_scalar_dense"  # Python's number of a tensor
LIFT = "lift_fresh"  # what is made of Python's own numbers
OVERWRITES = ("copy_", "fill_", "zero_")  # their first argument's old value does not matter
NEVER = ("isnan", "isinf", "isposinf", "isneginf")
ORDERING = ("lt", "le", "gt", "ge")  # of an unknown number, which is zero, as Python reads it
COMPARISONS = {"eq": True, "ne": False}  # `isfinite` compares with itself and with infinity
PICKING = ("gather", "index", "index_select", "take", "embedding")  # whatever the places, same numbers give that one
ABSORBING = {"bitwise_or": True, "logical_or": True, "bitwise_and": False, "logical_and": False}
CHOOSING = ("any", "all", "_is_all_true", "_is_any_true", "amax", "amin")  # same numbers give that number
OWN_OPERATORS = ("aten", "c10d", "_c10d_functional")
BY_LENGTHS = ("_pack_padded_sequence", "_pad_packed_sequence", "split_with_sizes", "segment_reduce")
FILLS = (
    "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full", "zero_",
    "fill_",
)  # fmt: skip
GUESSED = (*NEVER, *COMPARISONS, *PICKING, *ABSORBING, "topk", READING, "_to_copy")  # of what is unknown
COMPARED, SIZED, EQUATED = 1, 2, 3  # uses of a number that was read of a guess
# The first of other numbers, more and less than a loss that is known mostly is, and what the next is of each.
RISING, FALLING = (12.0, 1.2), (0.02, 0.8)
MOST_READ = 300.0  # of those that rise, whose exponential is a number too
KERNELS = "CUDA", "CompositeExplicitAutograd"  # as which `torch.library` lists an operator's kernel


class UnknownError(Exception):
    """A tensor's value is unknown."""


class GuessedNumber(float):
    """A number that a job read of a guess. Where the job compares it, or makes a whole number of it, `use` is called
    with that and the frame, and `way` gives the truth by which such a frame goes on as a healthy job does.
    """

    __slots__ = ("use", "way")
    way: Any
    use: Any

    def __reduce_ex__(self, _protocol: Any) -> Any:
        return float, (float.__float__(self),)

    __hash__ = float.__hash__


def note_uses_of(number: float, way: Any, use: Any) -> GuessedNumber:
    guessed = GuessedNumber(number)
    guessed.way, guessed.use = way, use
    return guessed


def _note_use(name: str) -> Any:
    plain = getattr(float, name)

    def act(self: GuessedNumber, *others: Any) -> Any:
        answer = plain(self, *others)
        kind = type(answer)
        if kind is float and name != "__float__":
            return note_uses_of(answer, self.way, self.use)
        if kind in (bool, int, float):
            frame = sys._getframe(1)  # noqa: SLF001 - who asks has no other name
            while "/numpy/" in frame.f_code.co_filename and frame.f_back is not None:
                frame = frame.f_back  # who gives it numbers
            is_equated = name in ("__eq__", "__ne__")
            self.use(EQUATED if is_equated else COMPARED if kind is bool else SIZED, frame)
            return self.way(frame, answer, can_turn=not is_equated) if kind is bool else answer
        return answer

    return act


for _name in (
    "abs", "add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod",
    "pow", "rpow", "neg", "pos", "lt", "le", "gt", "ge", "eq", "ne", "bool", "int", "float", "trunc", "floor", "ceil",
    "round",
):  # fmt: skip
    if hasattr(float, f"__{_name}__"):  # Python 3.8 has not all of them
        setattr(GuessedNumber, f"__{_name}__", _note_use(f"__{_name}__"))


class OtherNumbers:
    """Numbers that a run reads in place of unknown ones, `how` it does as one of `reads.NUMBERS`: they rise or fall,
    so that what hangs on them is another. Whole ones are by turns the most that it names, and 1, or else 0.
    """

    def __init__(self, torch: Any, how: str) -> None:
        self.falls, most = how.startswith("falling"), int(how.rpartition(" ")[2])
        self._whole = (min(1, most - 1), most)
        self._torch, (self._number, self._ratio) = torch, FALLING if self.falls else RISING
        self._turn = int(self.falls)

    def number(self, unknown: Any) -> Any:
        self._turn += 1
        if type(unknown) is not float:
            return self._whole[self._turn % 2] if type(unknown) is int else type(unknown)(self._turn % 2)
        number, self._number = self._number, min(self._number * self._ratio, MOST_READ)
        return number

    def fill(self, tensor: Any) -> None:
        """Write such numbers into a tensor on the host, about as large as the next one."""
        torch, places = self._torch, min(tensor.numel(), MOST)
        with torch._C._DisableTorchDispatch(), torch.no_grad():  # noqa: SLF001 - PyTorch's own name for it
            turns = torch.arange(self._turn, self._turn + places, device="cpu")
            whole = torch.tensor((1, 0) if tensor.dtype is torch.bool else self._whole, device="cpu")
            numbers = (turns % 5 + 1) * (self.number(1.0) / 5) if tensor.is_floating_point() else whole[turns % 2]
            numbers = numbers.repeat(-(-tensor.numel() // max(places, 1)))[: tensor.numel()]
            tensor.detach().copy_(numbers.view(tensor.shape))


def _each(act: Any, one: Any) -> Any:  # a function within another that calls itself waits for Python's collector
    kind = type(one)
    return kind([_each(act, part) for part in one]) if kind is list or kind is tuple else act(one)


class OperatorFacts(NamedTuple):
    is_view: bool  # its result is a view, or it changes which memory a tensor is, and it writes nothing
    is_random: bool  # its result is drawn, or is memory that holds nothing yet
    is_new: bool  # its result is drawn or holds one number, whatever it is given
    fills: bool  # its result holds one number
    written: tuple[tuple[int, str, bool], ...]  # arguments that it writes into; whether the old value does not matter
    numbers: tuple[int, ...]  # positions of tensors in the schema, where Python may give a number
    is_collective: bool  # ranks send each other its tensors
    is_lifted: bool  # its tensor is new and holds numbers of the host
    name: str  # without its namespace and overload
    is_sized: bool  # its result has as many places as values say
    is_plain: bool  # what is unknown makes a result that is, and neither writes into anything nor is a mask
    is_in_python: bool  # a library wrote its kernel in Python, of operators that are followed too


class StorageValue:
    """Known facts of one storage.

    Its `is_guess` is GUESS, or ORDER where its range is right; with PLACES of places in a row, which are sizes on the
    host; with BLANK where the host's memory was left unwritten; with ROWS of a mask's rows; with ZERO whether an
    unknown number, as zero, is less or more.
    """

    __slots__ = ("epoch", "fill", "is_guess", "is_received", "is_there", "mirror", "part", "reference", "was_there")

    def __init__(self, reference: int, *, is_guess: int = 0, epoch: int | None = None) -> None:
        self.reference, self.is_guess = reference, is_guess  # a weak one to the storage
        self.epoch = epoch  # in which a value that no host sent is believed; None for one that follows from the host
        self.fill: Any = None  # the one number that it was filled with
        self.mirror: Any = None  # its bytes on the CPU; None while `fill` stands for all of them
        self.part: Any = None  # the value of the one tensor that was asked for, where the rest is unknown
        self.is_there = self.was_there = False  # the device's memory holds the value too; or held an earlier one
        self.is_received = False  # another rank sent the value, which is looked at when it is asked for


class Values:
    def __init__(self, torch: Any, is_followed: Any, bring: Any = None) -> None:
        self.torch, self.is_followed, self._bring = torch, is_followed, bring
        self.epoch, self.rows, self.zero = 0, ROWS, ZERO  # which the probe, that imports nothing from here, asks about
        self.holds = True  # in all places of an unknown mask, or in none
        self.entries: dict[int, StorageValue] = {}
        self.guessed_on_host = self.drawn_on_host = 0  # storages that were marked so far; numbers drawn
        self._operators: dict[Any, OperatorFacts] = {}
        self._next_sweep, self._new_bytes = SWEEP, 0
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self._storage = torch.UntypedStorage
        self._plainly = torch._C._DisableTorchDispatch  # noqa: SLF001 - PyTorch's own name for it
        self._full, self._empty = torch.ops.aten.full.default, torch.empty

    def entry_of(self, tensor: Any) -> StorageValue | None:
        """The entry of a tensor's storage; None if its value is unknown."""
        entry = self.entries.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - the only name of a storage
        if entry is not None and entry.epoch is not None and entry.epoch != self.epoch:
            self.forget(tensor)
            return None
        if entry is None or not entry.is_received:
            return entry
        # Another rank, or Python, has sent it: all of the storage, or else the part that `tensor` is.
        if tensor.numel() > MOST or self._bring is None:
            return None
        whole = self._empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        value = self._bring(whole) if whole.numel() <= MOST else None
        if value is not None:
            self.put(whole, value)
            entry = self.entries[tensor.untyped_storage()._cdata]  # noqa: SLF001 - as above
            entry.is_there = entry.was_there = True
            return entry
        if (value := self._bring(tensor)) is None:
            return None
        part = StorageValue(entry.reference)
        part.part, part.is_there = value, True
        return part

    def value_of(self, tensor: Any, *, or_guess: bool = False) -> Any:
        """A tensor of the CPU that shares `tensor`'s value; None if that is unknown, or a guess."""
        if not self.is_followed(tensor):
            return tensor if or_guess or not self.is_guess(tensor) else None
        entry = self.entry_of(tensor)
        if entry is None or (entry.is_guess and not or_guess):
            return None
        try:
            return self._view(entry, tensor, is_read=True)
        except UnknownError:
            return None

    def is_guess(self, tensor: Any) -> int:
        """Return whether the value of a tensor on the host, or on the device, is a guess."""
        if not self.is_followed(tensor) and not self.guessed_on_host:
            return 0
        return getattr(self.entry_of(tensor), "is_guess", 0)

    def _view(self, entry: StorageValue, tensor: Any, *, is_read: bool = False) -> Any:
        if entry.part is not None:
            return entry.part
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        if entry.mirror is None:
            if tensor.numel() > MOST or (is_read and size > MOST):
                with self._plainly():
                    return self._full([], entry.fill, dtype=tensor.dtype).expand(tensor.shape)
            if size > MOST:
                raise UnknownError
            with self._plainly():
                entry.mirror = self._full([size], entry.fill, dtype=tensor.dtype).untyped_storage()
        if entry.mirror.nbytes() < tensor.untyped_storage().nbytes():  # the storage has grown since
            raise UnknownError
        with self._plainly():
            view = self._empty(0, dtype=tensor.dtype, device="cpu")
            return view.set_(entry.mirror, tensor.storage_offset(), tensor.shape, tensor.stride())

    def _new_entry(self, tensor: Any, *, is_guess: int, epoch: int | None) -> StorageValue:
        storage = tensor.untyped_storage()
        old = self.entries.get(storage._cdata)  # noqa: SLF001 - as above
        reference = storage._weak_ref() if old is None else old.reference  # noqa: SLF001 - as above
        entry = self.entries[storage._cdata] = StorageValue(reference, is_guess=is_guess, epoch=epoch)  # noqa: SLF001 - as above
        entry.was_there = old is not None and old.was_there
        self._new_bytes += min(storage.nbytes(), 4 * MOST)
        if len(self.entries) > self._next_sweep or self._new_bytes > SWEPT:
            for key, one in list(self.entries.items()):  # no other storage has the address of one till it is forgotten
                if self._storage._expired(one.reference):  # noqa: SLF001 - as above
                    del self.entries[key]
                    self._storage._free_weak_ref(one.reference)  # noqa: SLF001 - as above
            self._next_sweep, self._new_bytes = 2 * len(self.entries) + SWEEP, 0
        return entry

    def _covers(self, tensor: Any) -> bool:
        return bool(tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes())

    def put(
        self, tensor: Any, value: Any, *, is_guess: int = 0, epoch: int | None = None, is_new: bool = False
    ) -> None:
        """Let a tensor with a storage of its own, or a part of a known one, hold `value`, one of the CPU."""
        size = tensor.untyped_storage().nbytes()
        if size > MOST * tensor.element_size():
            self.forget(tensor)
            return
        covers = self._covers(tensor)
        entry = None if covers else self.entry_of(tensor)
        if not covers and not is_new and entry is None and tensor.numel():
            self.forget(tensor)
            return
        if covers or entry is None:
            entry = self._new_entry(tensor, is_guess=is_guess, epoch=epoch)
            with self._plainly():
                same = value.stride() == tensor.stride() and value.untyped_storage().nbytes() == size
                if same and value.storage_offset() == 0 and value.dtype is tensor.dtype:
                    entry.mirror = value.untyped_storage()
                    return
                entry.mirror = self._storage(size)
        with self._plainly():
            self._view(entry, tensor).copy_(value)
        entry.is_guess |= is_guess
        entry.is_there = False

    def fill(self, tensor: Any, number: Any, *, is_guess: int = 0, epoch: int | None = None) -> None:
        if not self._covers(tensor):
            self.forget(tensor)
            return
        self._new_entry(tensor, is_guess=is_guess, epoch=epoch).fill = number

    def lose(self, tensor: Any, engine: Any) -> None:
        """Know nothing more of a tensor that a kernel wrote into."""
        entry = self.entries.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - as above
        if entry is not None:
            self.forget(tensor)
            if entry.was_there and self.is_followed(tensor):
                engine.clear(tensor)

    def forget(self, tensor: Any) -> None:
        entry = self.entries.pop(tensor.untyped_storage()._cdata, None)  # noqa: SLF001 - as above
        if entry is not None:
            self._storage._free_weak_ref(entry.reference)  # noqa: SLF001 - as above

    def mark(self, tensor: Any, kind: int = GUESS) -> Any:
        self.guessed_on_host += 1
        self._new_entry(tensor, is_guess=kind, epoch=None)
        return tensor

    def _mark_written(self, written: list[tuple[Any, bool]]) -> None:
        """Mark those on the host: what engine fake returns of an operator is another tensor."""
        for one, _ in written:
            if not self.is_followed(one) and self.is_plain(one):
                self.mark(one)

    def receive(self, tensor: Any) -> None:
        self._new_entry(tensor, is_guess=0, epoch=None).is_received = True

    def operator(self, op: Any) -> OperatorFacts:
        if (known := self._operators.get(op)) is not None:
            return known
        schema = op._schema  # noqa: SLF001 - PyTorch's own name for it
        namespace, _, name = schema.name.partition("::")
        written = tuple(  # a scaler of gradients finds nothing infinite in a healthy job, or it would skip a step
            (at, one.name, one.is_out or (at == 0 and name in OVERWRITES))
            for at, one in enumerate(schema.arguments)
            if one.alias_info is not None and one.alias_info.is_write and one.name != "found_inf"
        )
        moves = getattr(self.torch.Tag, "inplace_view", None) in op.tags or name in ("set_", "resize_", "record_stream")
        is_view = moves or (any(one.alias_info is not None for one in schema.returns) and not written)
        tag = getattr(self.torch.Tag, "nondeterministic_seeded", None)
        facts = self._operators[op] = OperatorFacts(
            is_view=is_view,
            is_random=tag in op.tags or "empty" in name or namespace not in OWN_OPERATORS,
            is_new=name in FILLS or (namespace == "aten" and tag in op.tags),
            fills=name in FILLS,
            written=written,
            numbers=tuple(
                at for at, one in enumerate(schema.arguments) if str(one.type) in ("Tensor", "Optional[Tensor]")
            ),
            is_collective=namespace in ("c10d", "_c10d_functional"),
            is_lifted=name == LIFT,
            name=name,
            is_plain=self._bring is not None and not written and name not in GUESSED and name not in FILLS,
            is_sized=getattr(self.torch.Tag, "dynamic_output_shape", None) in op.tags,
            is_in_python=not self.torch.library._impls.isdisjoint(f"{namespace}/{name}/{key}" for key in KERNELS),  # noqa: SLF001 - the only list of them
        )
        return facts

    def is_plain(self, one: Any) -> bool:
        """Return whether `one` is a tensor of PyTorch's own class with a storage."""
        kind = type(one)
        if kind is not self._tensor and kind is not self._parameter and kind.__name__ not in ("Buffer", "FakeTensor"):
            return False
        return one.layout is self.torch.strided

    def compute(self, op: Any, args: Any, kwargs: Any, *, is_sample: bool = False) -> tuple[Any, int, int | None]:
        """Compute `op` on the values of its arguments; also whether that is a guess, and the epoch it is believed in.

        Raises:
            UnknownError: a value is unknown, or the CPU does not compute this.
        """
        is_guess, is_sent, filled = 0, False, False

        def bring(one: Any) -> Any:
            nonlocal is_guess, is_sent, filled
            if not isinstance(one, self._tensor):
                return self.torch.device("cpu") if isinstance(one, self.torch.device) else one
            if not self.is_followed(one):
                if one.numel() > MOST:
                    raise UnknownError
                if self.guessed_on_host and self.is_guess(one):
                    is_guess |= GUESS
                is_sent = True
                return one.detach()
            if (entry := self.entry_of(one)) is None:
                raise UnknownError
            is_guess |= entry.is_guess
            is_sent |= entry.epoch is None
            filled |= entry.epoch is not None
            if is_sample and entry.part is None:
                if entry.mirror is not None:
                    raise UnknownError
                return self._full([], entry.fill, dtype=one.dtype)
            if one.numel() > MOST_FILLED:
                raise UnknownError
            return self._view(entry, one)

        try:
            with self._plainly(), self.torch._C.DisableTorchFunction():  # noqa: SLF001 - as above
                words = _each(bring, args)
                named = {name: _each(bring, one) for name, one in kwargs.items() if name != "pin_memory"}
                result = op(*words, **named)
        except Exception as error:
            raise UnknownError from error
        return result, is_guess, self.epoch if filled and not is_sent else None

    def follow(self, op: Any, args: Any, kwargs: Any, run: Any, engine: Any) -> Any:
        """Run an operator on its tensors by `run()`, and carry the values of what it is given to what it gives.

        Of `engine`, `knowing()` is a context in which what kernels read is known; `note(takes_all)` counts a read of a
        guess at the job's line; `answer(number)` counts one and gives what the job reads; `vary(one)` gives another for
        an unknown number, or writes others into a tensor on the host, if the run `varies`; `load(tensor, value)` writes
        a value into the device's memory; `clear(tensor)` forgets what is there.
        """
        facts = self.operator(op)
        if facts.is_view:
            out = run()
            if facts.is_lifted and self.is_plain(out) and self.is_followed(out) and out.numel() <= MOST:
                self.receive(out)  # `torch.tensor([1, 2], device="cuda")`, which PyTorch copies without a dispatch
            return out
        tensors: list[Any] = []
        for one in args:
            if isinstance(one, (list, tuple)):
                lists = one if one and isinstance(one[0], (list, tuple)) else (one,)  # `all_gather` has lists of lists
                tensors.extend(each for part in lists for each in part if isinstance(each, self._tensor))
            elif isinstance(one, self._tensor):
                tensors.append(one)
        tensors.extend(one for one in kwargs.values() if isinstance(one, self._tensor))
        if not any(map(self.is_followed, tensors)) and getattr(kwargs.get("device"), "type", "cpu") == "cpu":
            size = tensors[0].numel() if tensors else 0
            if not tensors and facts.is_new and type(args[0]) is list:
                size = math.prod(args[0])
            is_large = size >= LARGE and self._bring is not None
            blank = self._left_blank(op, facts, args, kwargs, tensors) if is_large else None
            if blank is not None:
                return blank
            return self._follow_host(op, facts, args, kwargs, tensors, run, engine) if self.guessed_on_host else run()
        if not all(map(self.is_plain, tensors)):
            return run()
        self._note_sizes(op, facts, tensors, engine)
        if facts.is_collective:
            return self._follow_collective(tensors, run, engine)
        if tensors and facts.is_plain and all(self.is_followed(one) and self.entry_of(one) is None for one in tensors):
            outs = out if isinstance(out := run(), tuple) else (out,)
            is_new = all(type(one) is self._tensor and one.is_cuda and one.dtype is not self.torch.bool for one in outs)
            return out if is_new else self._not_known(op, facts, args, kwargs, [], out, engine)
        return self._follow_device(op, facts, args, kwargs, tensors, run, engine)

    def written_tensors(self, facts: OperatorFacts, args: Any, kwargs: Any) -> list[tuple[Any, bool]]:
        """Tensors that an operator writes into, and whether their old values do not matter."""
        tensors: list[tuple[Any, bool]] = []
        for place, name, is_overwritten in facts.written:
            one = args[place] if place < len(args) else kwargs.get(name)
            each_of = one if isinstance(one, (list, tuple)) else (one,)
            tensors.extend((each, is_overwritten) for each in each_of if isinstance(each, self._tensor))
        return tensors

    def _follow_device(
        self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, tensors: list[Any], run: Any, engine: Any
    ) -> Any:
        number = None
        if facts.fills and (not facts.written or self._covers(args[0])):
            names = (one.name for one in op._schema.arguments)  # noqa: SLF001 - PyTorch's own name for it
            given = {**dict(zip(names, args)), **kwargs}  # noqa: B905 - Python 3.8 knows no `strict`
            number = given.get("fill_value", given.get("value", int("one" in facts.name)))
        if isinstance(number, (bool, int, float)):
            out = run()
            if self.is_plain(out) and self.is_followed(out):
                self.fill(out, number, epoch=self.epoch)
            return out
        written = self.written_tensors(facts, args, kwargs) if facts.written else []
        targets = [one for one, is_overwritten in written if is_overwritten]
        inputs = tensors if not targets else [one for one in tensors if not any(one is each for each in targets)]
        if facts.is_random or any(self.is_followed(one) and self.entry_of(one) is None for one in inputs):
            if len(inputs) <= MOST_LOADED:
                self._load(inputs, engine)
            to = args[0].device if facts.name == "copy_" else facts.name == "_to_copy" and kwargs.get("device")
            # A copy on the host is marked: what takes numbers of it is noted then.
            with engine.knowing() if to and to.type == "cpu" else contextlib.nullcontext():
                out = run()
            return self._not_known(op, facts, args, kwargs, written, out, engine)
        for target in targets:  # whose own value does not matter
            if self.is_followed(target) and self.entry_of(target) is None:
                self.fill(target, 0, epoch=self.epoch)
        return self._compute_too(op, facts, args, kwargs, inputs, written, run, engine)

    def _load(self, tensors: list[Any], engine: Any) -> None:
        for one in tensors if self._bring is not None else ():  # else no kernel runs
            entry = self.entry_of(one) if self.is_followed(one) and one.numel() <= MOST else None
            if entry is not None and not entry.is_there and not entry.is_guess and one.is_contiguous():
                engine.load(one, self._view(entry, one, is_read=True))
                entry.is_there, entry.was_there = self._covers(one), True

    def _compute_too(
        self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, inputs: list[Any], written: list[tuple[Any, bool]],
        run: Any, engine: Any,
    ) -> Any:  # fmt: skip
        self._load(inputs, engine)
        is_sent_now = not any(map(self.is_followed, inputs))
        before = [(one, self.entry_of(one)) for one, _ in written if self.is_followed(one)]
        is_first = self._bring is not None and bool(written) and written[0][0] is args[0] and not written[0][1]
        is_on_host = is_first and not self.is_followed(args[0]) and args[0].numel() <= MOST
        with self._plainly():  # PyTorch's kernel changes it, so the CPU computes with another
            words = (args[0].detach().clone(), *args[1:]) if is_on_host else args
        with engine.knowing():
            out = run()
        outs = out if isinstance(out, (list, tuple)) else (out,)
        sizes = [one.numel() for one in outs if isinstance(one, self._tensor)]
        is_sample = max(sizes, default=0) > MOST or (
            (sizes == [1] and facts.name in CHOOSING) and any(one.numel() > MOST for one in inputs)
        )
        try:
            result, is_guess, epoch = self.compute(op, words, kwargs, is_sample=is_sample)
        except UnknownError:
            return self._not_known(op, facts, args, kwargs, written, out, engine)
        if is_guess and self._certain(facts.name, args) is not None:  # as of what has no guess
            return self._not_known(op, facts, args, kwargs, written, out, engine)
        if is_guess:
            self._mark_written(written)
        is_guess |= ROWS if is_guess and facts.name == "nonzero" else 0
        if is_guess and self._picked(facts, args) is not None:
            is_guess = 0
        for one, entry in before:  # which were written through their mirrors
            if entry is not None and entry.part is not None:
                self.lose(one, engine)
            elif entry is not None:
                is_new = any(one is each and new for each, new in written)
                entry.is_guess = is_guess or (0 if is_new else entry.is_guess)
                entry.epoch, entry.is_there = epoch if entry.epoch is not None else None, False
        results = result if isinstance(result, (list, tuple)) else (result,)
        if not isinstance(out, self._tensor) and not isinstance(out, (list, tuple)):
            return engine.answer(result) if is_guess and out is not None else result
        for one, known in zip(outs, results):  # noqa: B905 - Python 3.8 knows no `strict`
            if not self.is_plain(one) or not isinstance(known, self._tensor):
                continue
            if is_sample and known.numel() == 1 and one.numel() > 1:
                with self._plainly():
                    number = True if is_guess and self.holds and one.dtype is self.torch.bool else known.item()
                if not self.is_followed(one):
                    with self._plainly():
                        known = self._full([], number, dtype=one.dtype).expand(one.shape)  # noqa: PLW2901 - all alike
                elif not facts.written:
                    self.fill(one, number, is_guess=is_guess, epoch=epoch)
                    continue
            if one.numel() != known.numel() or (any(one is each for each, _ in written) and self.is_followed(one)):
                continue
            if self.is_followed(one):
                if is_guess and self.holds and one.dtype is self.torch.bool and one.numel() > 1:
                    self.fill(one, True, is_guess=GUESS)
                elif one.dtype is known.dtype:
                    self.put(one, known, is_guess=is_guess, epoch=epoch, is_new=True)
                    entry = self.entry_of(one) if is_sent_now and one.numel() <= MOST else None
                    if entry is not None:
                        entry.is_there = entry.was_there = True
                    elif one.numel() == 1:  # `torch.tensor([one])` reads it without a dispatch
                        self._load([one], engine)
            elif not facts.written or is_guess or is_on_host:
                with self._plainly():
                    one.detach().copy_(known)
                if is_guess:
                    engine.vary(self.mark(one))
                    engine.note(takes_all=True)
                    if is_guess & PLACES:
                        engine.note_size()
        return out

    def _not_known(
        self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, written: list[tuple[Any, bool]], out: Any,
        engine: Any,
    ) -> Any:  # fmt: skip
        for one, is_overwritten in written:
            is_mask = one.dtype is self.torch.bool and self.is_followed(one) and one.numel() <= MOST
            value = self.value_of(one, or_guess=True) if is_mask and not is_overwritten else None
            with self._plainly():
                has_all = value is not None and bool(value.all())
            self.lose(one, engine)
            if has_all:  # some of its places may be taken out
                self.fill(one, True, is_guess=GUESS)
        self._mark_written(written)
        self._guess(op, facts, args, kwargs, out)
        for one in ([one for one, _ in written] or self._guessed(args, out)) if engine.varies else ():
            if self.is_plain(one) and not self.is_followed(one):
                engine.vary(one)
        if facts.name == READING:
            return engine.vary(out)
        # Whole tensors that are compared are alike in a healthy job if their shapes are.
        return (facts.name in ("equal", "allclose") and args[0].shape == args[1].shape) if type(out) is bool else out

    def _guessed(self, args: Any, out: Any) -> list[Any]:
        """The tensors that an operator returned, without those on the host if others are on the GPU: the host computed
        them from its own numbers, as the batch sizes of `_pack_padded_sequence`.
        """
        ones = [one for one in (out if isinstance(out, (list, tuple)) else (out,)) if self.is_plain(one)]
        given = [one for one in args if self.is_plain(one) and not self.is_followed(one)]
        is_known = not any((entry := self.entry_of(one)) is not None and entry.is_guess for one in given)
        return [one for one in ones if is_known and self.is_followed(one)] or ones

    def _picked(self, facts: OperatorFacts, args: Any) -> Any:
        """The number that any places pick from a known tensor of equal numbers; None of another."""
        if facts.name not in PICKING or (value := self.value_of(args[0])) is None or not value.numel():
            return None
        with self._plainly():
            return value.reshape(-1)[0].item() if bool((value == value.reshape(-1)[0]).all()) else None

    def _certain(self, name: str, args: Any) -> bool | None:
        """The answer whatever unknown numbers are, if they are neither NaN nor infinite; None if it depends on them."""
        if name in NEVER:
            return False
        if name in COMPARISONS and len(args) > 1:
            is_same = args[0] is args[1]
            if is_same or (isinstance(args[1], float) and not math.isfinite(args[1])):
                return COMPARISONS[name] is is_same
        for one in args if name in ABSORBING else ():
            value = self.value_of(one) if isinstance(one, self._tensor) and one.numel() <= MOST else None
            if value is not None and (value.dtype is self.torch.bool or not ABSORBING[name]):
                with self._plainly():
                    if bool((value == ABSORBING[name]).all()):
                        return ABSORBING[name]
        return None

    def _guess(self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, out: Any) -> None:  # noqa: ARG002 - engine fake's
        """Guess masks, and mark what went to the host."""
        verdict, kind = self._certain(facts.name, args), 0
        epoch = self.epoch if facts.name in ABSORBING else None
        if (picked := self._picked(facts, args)) is not None:
            verdict, epoch = picked, self.epoch
        elif verdict is None and self._bring and facts.name in ORDERING and out.numel() == 1 and not facts.written:
            numbers = (self.value_of(one, or_guess=True) if isinstance(one, self._tensor) else one for one in args)
            with self._plainly():
                verdict, kind = op(*(self._full([], 0) if one is None else one for one in numbers)).item(), GUESS | ZERO
        if verdict is not None and self.is_plain(out) and self.is_followed(out):
            self.fill(out, verdict, is_guess=kind, epoch=epoch)
            return
        for one in self._guessed(args, out):
            is_mask = one.dtype is self.torch.bool and (one.numel() > 1 or not self.holds)
            if not self.is_followed(one):
                if is_mask:
                    with self._plainly():
                        one.detach().fill_(self.holds)
                self.mark(one)
            elif is_mask and not facts.written and not facts.is_random:
                self.fill(one, self.holds, is_guess=GUESS)
            elif facts.name == "topk" and one.dim() == 1 and not one.is_floating_point() and self._bring is not None:
                with self._plainly():  # spread over all places, for the host may divide by them
                    places = self.torch.arange(1, len(one) + 1) * len(args[0]) // (len(one) + 1)
                self.put(one, places, is_guess=GUESS | PLACES)

    def _left_blank(self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, tensors: list[Any]) -> Any:
        """Large tensors of the host that are drawn, filled with one number, or made of such ones, as weights are: they
        take none of the host's memory, nor time. None for others.
        """
        if not all(map(self.is_plain, tensors)):
            return None
        first = tensors[0] if tensors else None
        others = [one for one in tensors if one.numel() > MOST and not (facts.written and one is first)]
        is_made = bool(others) and all(self.is_guess(one) & BLANK for one in others)
        is_new = facts.is_new and not others
        if facts.written:
            if first is not args[0] or not first.is_floating_point() or not self._covers(first):
                return None
            self.drawn_on_host += first.numel() * is_new
            stays = bool(self.is_guess(first) & BLANK) and (not others or is_made or facts.name == "copy_")
            is_blank = stays or (is_new and self.drawn_on_host > DRAWN) or (is_made and facts.written[0][2])
            return self.mark(first, GUESS | BLANK) if is_blank else None
        if not is_made and not is_new:
            return None
        without_memory = self.torch.utils._pytree.tree_map_only  # noqa: SLF001 - as above
        with self._plainly(), self.torch._C.DisableTorchFunction():  # noqa: SLF001 - as above
            try:
                metas = without_memory(self._tensor, lambda one: one.to("meta"), args)
                metas = op(*metas, **(kwargs if is_made else {**kwargs, "device": "meta"}))
            except Exception:
                return None
            outs = metas if isinstance(metas, (list, tuple)) else (metas,)
            is_large = all(isinstance(one, self._tensor) and one.numel() >= LARGE for one in outs)
            if not (is_large and all(one.is_floating_point() for one in outs)):
                return None
            self.drawn_on_host += sum(one.numel() for one in outs) * is_new
            if is_new and self.drawn_on_host <= DRAWN:
                return None
            blanks = [self.mark(self.torch.empty_like(one, device="cpu"), GUESS | BLANK) for one in outs]
        return type(metas)(blanks) if isinstance(metas, (list, tuple)) else blanks[0]

    def _follow_host(
        self, op: Any, facts: OperatorFacts, args: Any, kwargs: Any, tensors: list[Any], run: Any, engine: Any
    ) -> Any:
        """An operator on the host: what it makes of guesses is one."""
        written = self.written_tensors(facts, args, kwargs)
        fresh = [one for one, is_overwritten in written if is_overwritten and self.is_plain(one) and self._covers(one)]
        inputs = [one for one in tensors if not any(one is each for each in fresh)]
        is_guess = any(self.is_plain(one) and self.is_guess(one) for one in inputs)
        out = run()
        if not is_guess:
            for one in fresh:
                self.forget(one)
            return out
        self._mark_written(written)
        outs = out if isinstance(out, (list, tuple)) else (out,)
        verdict = self._certain(facts.name, args)
        for one in outs:
            if self.is_plain(one):
                is_mask = one.dtype is self.torch.bool and one.numel() > 1 and self.holds and not engine.varies
                if one.dtype is self.torch.bool and (verdict is not None or is_mask):
                    with self._plainly():
                        one.detach().fill_(verdict is not False)
                if verdict is None:
                    self.mark(one)
            elif one is not None and not isinstance(one, self._tensor):
                engine.note(takes_all=False)
        self._note_sizes(op, facts, tensors, engine)
        return out

    def _note_sizes(self, op: Any, facts: OperatorFacts, tensors: list[Any], engine: Any) -> None:
        """Note an operator whose result has as many places as guesses on the host say, or may have."""
        taken = [one for one in tensors if not self.is_followed(one) and self.is_taken(one)]
        if facts.name == "index":  # as many as there are whole numbers
            taken = [one for one in taken if one is not tensors[0] and one.dtype in (self.torch.bool, self.torch.uint8)]
        namespace = op._schema.name.partition("::")[0] if taken else "aten"  # noqa: SLF001 - as above
        if taken and (facts.is_sized or facts.name in BY_LENGTHS or namespace not in OWN_OPERATORS):
            engine.note(takes_all=facts.is_sized)
            engine.note_size()

    def is_taken(self, tensor: Any) -> bool:
        """Return whether the numbers of a tensor on the host are guesses, and not just left blank."""
        kind = self.is_guess(tensor) if self.guessed_on_host and self.is_plain(tensor) else 0
        return bool(kind) and not kind & BLANK

    def _follow_collective(self, tensors: list[Any], run: Any, engine: Any) -> Any:
        """Send what is known, and look later at what came back: no operator writes that."""
        for one in tensors:
            value = self.value_of(one) if self.is_followed(one) else None
            if value is not None and one.numel() <= MOST:
                engine.load(one, value)
        out = run()
        outs = out if isinstance(out, (list, tuple)) else (out,)
        for one in (*tensors, *(each for each in outs if self.is_plain(each))):
            if self.is_followed(one):
                self.receive(one)
        return out
