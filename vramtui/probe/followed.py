"""Follow values on a simulated GPU: below autograd, each operator passes by here before its kernel, which does nothing.

The dispatch key `Fake` has no kernels in PyTorch. A fallback in Python has its place, and a thread includes the key
while it runs the job's own code. Autograd's engine leaves it out: a gradient that has a Python object is one more
reference, by which autograd copies instead of adding in place. Code that a checkpoint runs again in the backward pass
includes it.

PyTorch reads the number of places of `nonzero`, every mask, `unique`, `repeat_interleave` and NMS from the GPU. It
would be zero there, and a job seldom works with nothing: its maximum has no value, its batch no rows. So it is what is
known of the values, else as many as there can be, and the read is counted. PyTorch's own kernels do the rest and take
the memory that they take (`torch.library.get_kernel`, since 2.10; older releases read zero).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import importlib.util
import os
import re
import sys
import threading
import warnings
from typing import Any

from .guards import TURNS
from .import_hook import around, when_imported
from .reads import OWN

SHARED = "_vramtui_dryrun"  # as which `vramtui/dryrun` is loaded: a job may have a vramtui of another version, or none
KEY = "Fake"  # between autograd and the kernels (c10/core/DispatchKey.h, 2.0 to 2.14); above `Python` in 2.11


class Follower:
    """Passes each operator to `values`; `reads` counts what is read of unknown ones."""

    def __init__(self, torch: Any, reads: Any) -> None:
        self._torch, self._reads = torch, reads
        self.knowing, self.note = reads.knowing, reads.count_here  # for `Values.follow`
        self.note_size = lambda: reads.use(reads.last, 2)  # SIZED of `values`
        self.values = load_shared("values").Values(torch, lambda tensor: tensor.is_cuda, self._bring)
        self.value_of, self.values.holds = self.values.value_of, reads.holds
        self._others = load_shared("values").OtherNumbers(torch, how) if (how := reads.other_numbers) else None
        self.varies = self._others is not None
        self._launches: Any = ctypes.c_uint64(0)
        with contextlib.suppress(ValueError, AttributeError):  # our driver counts the kernels that were launched
            self._launches = ctypes.c_uint64.in_dll(ctypes.CDLL(None), "vramtui_launches")
        self._seen = 0  # launches of kernels so far that operators made
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._copy = torch.ops.aten.copy_.default
        self._zero = getattr(ctypes.CDLL(None), "cuMemsetD8_v2", None)

    def begin(self) -> None:
        """Follow the job's threads from now on; no release of PyTorch before 2.5 can be followed."""
        torch = self._torch
        core = torch._C  # noqa: SLF001 - PyTorch's own name for it
        try:
            key = core._parse_dispatch_key(KEY)  # noqa: SLF001 - as above
            own, below = core.DispatchKeySet(key), core._dispatch_keyset_full_after(key)  # noqa: SLF001 - as above
            library = torch.library.Library("_", "IMPL")
            follow = self._passing(own, below)
            library.fallback(follow, KEY, with_keyset=True)
        except (AttributeError, RuntimeError, TypeError):
            return
        # Let views pass: they compute nothing, and PyTorch may give one another class (`_make_subclass`).
        aten = torch.library.Library("aten", "IMPL")
        for schema in core._jit_get_all_schemas():  # noqa: SLF001 - as above
            namespace, _, name = schema.name.partition("::")
            is_view = any(one.alias_info is not None for one in schema.returns) and not schema.is_mutable
            if namespace == "aten" and is_view and name != "lift_fresh":
                full = f"{name}.{schema.overload_name}" if schema.overload_name else name
                with contextlib.suppress(RuntimeError):  # TorchScript's own, which are not dispatched
                    aten.impl(full, torch.library.fallthrough_kernel, KEY)
        self._libraries = library, aten
        include = core._dispatch_tls_set_dispatch_key_included  # noqa: SLF001 - as above
        include(KEY, True)
        is_included = core._dispatch_tls_is_dispatch_key_included  # noqa: SLF001 - as above
        if below.has(core.DispatchKey.Python):
            known: set[str] = set()
            _follow_each(torch, follow, known)

            def enter(act: Any, mode: Any) -> Any:  # it may see operators that a library brought since
                if is_included(KEY):
                    _follow_each(torch, follow, known)
                return act(mode)

            around(importlib.import_module("torch.utils._python_dispatch").TorchDispatchMode, "__enter__", enter)

        def within(act: Any, *, yes: bool) -> Any:
            @functools.wraps(act)
            def acted(*args: Any, **kwargs: Any) -> Any:
                before = is_included(KEY)
                include(KEY, yes)
                try:
                    return act(*args, **kwargs)
                finally:
                    include(KEY, before)
                    self._seen = self._launches.value

            return acted

        again = functools.partial(within, yes=True)
        engine = within(torch.autograd.graph._engine_run_backward, yes=False)  # noqa: SLF001 - as above
        torch.autograd.graph._engine_run_backward = torch.autograd._engine_run_backward = engine  # noqa: SLF001 - as above
        threading.Thread._bootstrap_inner = again(threading.Thread._bootstrap_inner)  # type: ignore[attr-defined] # noqa: SLF001 - as above

        # What Python itself does in a backward pass is followed again, but for what is compiled.
        def run_backward(act: Any, self: Any, *args: Any) -> Any:
            return (act if "._functorch." in self._forward_cls.__module__ else again(act))(self, *args)

        around(torch.autograd.function.BackwardCFunction, "apply", run_backward)
        for name in ("register_hook", "register_post_accumulate_grad_hook"):
            around(torch.Tensor, name, lambda act, self, hook: act(self, again(hook)))

        def leave(owner: Any, name: str, *, yes: bool = False) -> None:
            setattr(owner, name, within(getattr(owner, name), yes=yes))

        # PyTorch finds no fallback in Python for fake tensors of the job or of DTensor, nor where vLLM compiles.
        when_imported("torch._subclasses.fake_tensor", lambda module: leave(module.FakeTensorMode, "dispatch"))
        when_imported("torch._subclasses.fake_tensor", lambda module: leave(module.FakeTensorMode, "from_tensor"))
        when_imported("torch._dynamo.aot_compile", lambda module: leave(module, "aot_compile_fullgraph"))
        # Inductor reads its constants, by which it leaves out what does nothing (constant_folding.py, 2.13).
        when_imported("torch._inductor.constant_folding", lambda module: leave(module.ConstantFolder, "run", yes=True))
        when_imported("torch._dynamo.eval_frame", functools.partial(_leave_compiled, self._reads, include, is_included))
        when_imported("triton.runtime.jit", lambda module: around(module.JITFunction, "run", self._launch))
        for higher in list(torch._ops._higher_order_ops.values()):  # noqa: SLF001 - as above
            higher.fallthrough(key)
        torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(key)  # noqa: SLF001 - as above

        def follow_checkpoints(checkpoint: Any) -> None:  # what they run again (torch/utils/checkpoint.py, 2.13)
            def begun(act: Any, self: Any, recompute: Any, *args: Any, **kwargs: Any) -> None:
                act(self, again(recompute), *args, **kwargs)

            around(checkpoint._CheckpointFrame, "__init__", begun)  # noqa: SLF001 - as above
            checkpoint.CheckpointFunction.backward = staticmethod(again(checkpoint.CheckpointFunction.backward))

        when_imported("torch.utils.checkpoint", follow_checkpoints)

    def _launch(self, run: Any, kernel: Any, *given: Any, grid: Any, **named: Any) -> Any:
        """Know nothing more of what a kernel of Triton's writes into; the rest stays."""
        is_first = self._launches.value == self._seen
        compiled = run(kernel, *given, grid=grid, **named)
        written = arguments_written(getattr(compiled, "asm", {}).get("ttir", "")) if is_first else None
        arguments = {**dict(zip(kernel.arg_names, given)), **named}  # noqa: B905 - Python 3.8 knows no `strict`
        if written is not None and arguments.keys() >= written and tuple not in map(type, arguments.values()):
            self._seen = self._launches.value
            for name in written:
                tensor = getattr(arguments[name], "base", arguments[name])  # Triton wraps some
                if self.values.is_plain(tensor) and tensor.is_cuda:
                    self.values.lose(tensor, self)
        return compiled

    def _passing(self, own: Any, below: Any) -> Any:
        torch, values, launches = self._torch, self.values, self._launches
        leave = torch._C._ExcludeDispatchKeyGuard  # noqa: SLF001 - as above
        plainly = torch._C.DisableTorchFunction  # noqa: SLF001 - as above
        numbers, nothing = (int, float, bool, complex), torch.empty(0)
        allows_numbers = getattr(torch._C, "_should_allow_numbers_as_tensors", bool)  # noqa: SLF001 - as above
        facts_of = values.operator
        is_capturing, is_traced = self._is_capturing, torch._C._get_tracing_state  # noqa: SLF001 - as above
        python = torch._C.DispatchKey.Python  # noqa: SLF001 - as above
        is_above = below.has(python)

        def wraps(op: Any, args: Any) -> bool:  # a number that C++ wrapped into a tensor is a number again here
            return any(at < len(args) and type(args[at]) in numbers for at in facts_of(op).numbers)

        def run(keys: Any, op: Any, args: Any, kwargs: Any) -> Any:
            rest = keys & below
            if rest.raw_repr() and not wraps(op, args):
                result = op._handle.redispatch_boxed(rest, *args, **kwargs)  # noqa: SLF001 - as above
                # A list's undefined tensor is None here, which C++ takes back as no tensor (pybind_utils.cpp, 2.13).
                return [nothing if one is None else one for one in result] if type(result) is list else result
            at = () if allows_numbers(facts_of(op).name) else facts_of(op).numbers
            with plainly():  # with a number, or Python's dispatcher, which names one key at a time
                given = (torch.tensor(one) if i in at and type(one) in numbers else one for i, one in enumerate(args))
                return op(*given, **kwargs)

        def run_inside(keys: Any, op: Any, args: Any, kwargs: Any) -> Any:
            if not facts_of(op).is_in_python or not (keys & below).raw_repr() or wraps(op, args):
                return run(keys, op, args, kwargs)
            return self.run_followed(functools.partial(run, keys, op, args, kwargs))

        def follow(keys: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
            if is_above and keys.has(python):  # a mode or a subclass takes it, whose own operators are followed
                with leave(own) if wraps(op, args) else contextlib.nullcontext():
                    return run(keys, op, args, kwargs)
            with leave(own):
                if launches.value != self._seen:  # a kernel of no operator ran, and may have written
                    values.epoch += 1
                try:
                    # A graph writes as often as it runs, and `torch.jit` would note what is computed here.
                    if is_traced() or (torch.cuda.is_initialized() and is_capturing()):
                        for one, _ in values.written_tensors(facts_of(op), args, kwargs):
                            values.lose(one, self)
                        return run(keys, op, args, kwargs)
                    return values.follow(op, args, kwargs, functools.partial(run_inside, keys, op, args, kwargs), self)
                finally:
                    self._seen = launches.value

        return follow

    # The engine that `Values.follow` asks.

    def answer(self, number: Any) -> Any:
        """The number that the job reads for a guess: zero, or one for zero, once a loop has waited long enough."""
        number = self.vary(number)
        self.note(takes_all=type(number) is int)
        frame: Any = sys._getframe(1)  # noqa: SLF001 - the frames of this thread have no other name
        while frame is not None and (
            self._reads.is_of_torch(frame) or frame.f_code.co_filename.startswith((*OWN, "<"))
        ):
            frame = frame.f_back
        return type(number)(not number) if TURNS.are_over(frame) else number

    def vary(self, one: Any) -> Any:
        if self._others is None or not self._reads.varies_here():
            return one
        if isinstance(one, self._torch.Tensor):
            self._others.fill(one)
            return one
        return self._others.number(one)

    def load(self, tensor: Any, value: Any) -> None:
        self._copy(tensor.detach(), value)

    def clear(self, tensor: Any) -> None:
        """Let the device's memory hold zeros, as it does after any kernel."""
        storage = tensor.untyped_storage()
        if self._zero is not None and not self._is_capturing():
            self._zero(ctypes.c_uint64(storage.data_ptr()), ctypes.c_ubyte(0), ctypes.c_size_t(storage.nbytes()))

    # What the operators of `choices` ask.

    def run_followed(self, act: Any) -> Any:
        core = self._torch._C  # noqa: SLF001 - as above
        exclude = core._dispatch_tls_set_dispatch_key_excluded  # noqa: SLF001 - as above
        before = core._dispatch_tls_is_dispatch_key_excluded(KEY)  # noqa: SLF001 - as above
        exclude(KEY, False)
        try:
            return act()
        finally:
            exclude(KEY, before)

    def write(self, tensor: Any, numbers: Any, *, is_guess: bool) -> None:
        if not self._is_capturing():
            self.load(tensor, numbers)
            self.values.put(tensor, numbers, is_guess=is_guess)

    def _bring(self, tensor: Any) -> Any:
        copy, is_known = self._reads.bring(tensor.detach().cpu)
        return copy if is_known else None


_PASSING = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.bitcast", "tt.reshape", "arith.select")


@functools.lru_cache(1024)
def arguments_written(code: str) -> frozenset[str] | None:
    """The names of a kernel's arguments at whose addresses it may write, by its code in Triton's TTIR (3.7): those that
    go to anything but a load, or what moves an address on. None: it may write anywhere.
    """
    named = dict(re.findall(r'(%\w+): !tt\.[^%]*?loc\("(\w+)"', code))
    if not named or re.search(r"tt\.int_to_ptr|tt\.call", code):
        return None
    made_of: dict[str, set[str]] = {"loops": set()}
    ends: list[str] = []
    for line in code.partition("tt.func")[2].splitlines()[1:]:
        names, does = re.findall(r"%\w+", line), re.search(r"\^bb|[a-z_]+\.[a-z]\w*", line)
        if does is None or not names or does[0] == "tt.load":
            continue
        if does[0].startswith(("scf.", "cf.", "^bb")):  # what a loop or a branch is given may be any that it hands on
            made_of["loops"].update(names)
            made_of.update({name: {"loops", *made_of.get(name, ())} for name in names})
            continue
        has_result = line.lstrip().startswith("%")
        given = names[has_result:]
        made_of.setdefault(names[0] if has_result else "", set()).update(given)
        if does[0] not in _PASSING:
            ends += given[:1] if does[0].startswith(("tt.store", "tt.atomic")) else given
    reached = {*ends}
    while more := {one for name in reached for one in made_of.get(name, ())} - reached:
        reached |= more
    return frozenset(named[one] for one in reached & named.keys()) or None


def load_shared(name: str) -> Any:
    if SHARED not in sys.modules:
        folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "dryrun")
        spec = importlib.util.spec_from_file_location(
            SHARED, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules[SHARED] = package = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"{SHARED}.{name}")


def _follow_each(torch: Any, follow: Any, known: set[str]) -> None:
    """Register `follow` for each operator that has no function by its name yet.

    Where the key stands above `Python`, PyTorch looks for the function of an operator of a mode or of a tensor's
    subclass by its name, and finds no fallback (`PythonKernelHolder`, torch/csrc/utils/python_dispatch.cpp, 2.11).
    """
    libraries: dict[str, Any] = {}
    for name in set(torch._C._dispatch_get_all_op_names()) - known:  # noqa: SLF001 - as above
        known.add(name)
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, KEY):  # noqa: SLF001 - a view
            continue
        owner, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        path = owner, packet, overload or "default"

        def call_by_name(keys: Any, *args: Any, at: tuple[str, ...] = path, **kwargs: Any) -> Any:
            return follow(keys, functools.reduce(getattr, at, torch.ops), *args, **kwargs)

        if owner not in libraries:
            libraries[owner] = torch.library.Library(owner, "IMPL")
        libraries[owner].m.impl(rest, KEY, call_by_name, True)
    _libraries.extend(libraries.values())


def _leave_compiled(reads: Any, include: Any, is_included: Any, frames: Any) -> None:
    """Follow nothing in code that `torch.compile` compiles or has compiled: its guards ask which keys are included
    (`OptimizeContext`, torch/_dynamo/eval_frame.py, 2.13).
    """

    def plain(one: Any) -> Any:
        if type(one) is guessed:
            one.use(2, sys._getframe(2))  # noqa: SLF001 - SIZED of `values`, by whoever calls what is compiled
        return float.__float__(one) if type(one) is guessed else one

    def called(act: Any, self: Any, function: Any) -> Any:
        run = act(self, function)

        def run_unfollowed(*args: Any, **kwargs: Any) -> Any:
            before, reads.is_compiled = is_included(KEY), True
            include(KEY, False)
            try:
                return run(*map(plain, args), **{name: plain(one) for name, one in kwargs.items()})
            finally:  # a hook of the context's own runs before it puts back which keys it found
                include(KEY, before)
                reads.is_compiled = not before

        return functools.wraps(run)(run_unfollowed) if isinstance(run, type(plain)) else run

    guessed = load_shared("values").GuessedNumber  # each of whose operators would break the graph
    around(frames.OptimizeContext, "__call__", called)


CLASSES = "_vramtui_classes"  # on what `one_hot` gave: how many there are
PLACES = "_vramtui_places"  # on a mask: how many hold
KINDS = "_vramtui_kinds"  # on places that `argmax` gave: how many different ones there can be
_libraries: list[Any] = []  # of PyTorch, whose registrations end with them


def count_choices(torch: Any, reads: Any, values: Any) -> None:
    """Answer what these operators of PyTorch's, and later of torchvision's, read of the card."""
    if not hasattr(torch.library, "get_kernel"):
        return
    for name, most in COUNTED.items():
        change(torch, f"aten::{name}", _count(torch, reads, values, name, most))
    change(torch, "aten::one_hot", functools.partial(_know_classes, values))
    for name, known in HISTOGRAMS.items():
        change(torch, f"aten::{name}", functools.partial(_share_places, reads, values, known))
    change(torch, "aten::eq.Scalar", functools.partial(_note, PLACES, functools.partial(_places_of_class, values)))
    change(torch, "aten::any.dim", functools.partial(_note, PLACES, lambda mask, *_: getattr(mask, PLACES, None)))
    for name in ("argmax", "argmin", "max.dim", "min.dim"):
        change(torch, f"aten::{name}", functools.partial(_note, KINDS, _kinds_along))
    change(torch, "aten::_coalesce", _count(torch, reads, values, "", lambda sparse: sparse._nnz()), "SparseCUDA")  # noqa: SLF001 - PyTorch documents it

    def pass_checks(know: Any, kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
        with know():
            return kernel.call_boxed(keys, *arguments, **named)

    for names, know in ((CHECKED, lambda: reads.know_next([0])), (SOLVED, reads.knowing)):  # a byte that is read is one
        for name in names:
            change(torch, f"aten::{name}", functools.partial(pass_checks, know))
    when_imported(
        "torchvision.ops.boxes",
        lambda _: change(torch, "torchvision::nms", _count(torch, reads, values, "", lambda boxes, *_: len(boxes))),
    )


def change(torch: Any, name: str, act: Any, key: str = "CUDA") -> None:
    """Let `act(kernel, keys, *arguments)` stand in the place of an operator's kernel of CUDA."""
    try:
        kernel = torch.library.get_kernel(name, key)
    except RuntimeError:  # not in this release, or no kernel of CUDA's
        return
    owner, _, rest = name.partition("::")
    _libraries.append(library := torch.library.Library(owner, "IMPL"))
    with warnings.catch_warnings():  # that a kernel stood there
        warnings.simplefilter("ignore")
        library.impl(rest, functools.partial(act, kernel), key, with_keyset=True)


def _count(torch: Any, reads: Any, values: Any, name: str, most: Any) -> Any:
    """Return a function that runs a kernel whose reads are the number of places. The operator of that name, if any,
    answers for a host's copy of the first argument; `most` gives as many places as there can be.
    """
    kind, _, overload = name.partition(".")

    def run(kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
        if reads.known_next is not None:
            return kernel.call_boxed(keys, *arguments, **named)
        copy = values.value_of(arguments[0], or_guess=not reads.holds) if name else None
        if copy is None:
            reads.count_here(takes_all=True)
            reads.use(reads.last, 1)
            places = most(*arguments, **named) if reads.holds or name != "nonzero" else 0
            places = min(places, 1) if reads.varies_here() and reads.other_numbers.startswith("falling") else places
        else:
            answer = getattr(getattr(torch.ops.aten, kind), overload or "default")(copy, *arguments[1:], **named)
            counted = answer[0] if isinstance(answer, tuple) else answer
            places = int(counted.shape[arguments[1] if "dim" in kind else 0])
        with reads.know_next([places]):
            return kernel.call_boxed(keys, *arguments, **named)

    return run


def _likely(tensor: Any) -> int:
    """All places, or what the operators below know of a mask: its share of a class, or what was compared."""
    base = None if tensor.is_inference() else tensor._base  # noqa: SLF001 - PyTorch's own name for it
    classes = getattr(tensor if base is None else base, CLASSES, 1)
    return int(min(tensor.numel(), getattr(tensor, PLACES, -(-tensor.numel() // classes))))


def _know_classes(values: Any, kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
    """`one_hot`: each class has its share, as tokens have of a router's experts."""
    answer = values.run_followed(functools.partial(kernel.call_boxed, keys, *arguments, **named))
    setattr(answer, CLASSES, answer.shape[-1])
    return answer


def _share_places(reads: Any, values: Any, known: Any, kernel: Any, keys: Any, *arguments: Any) -> Any:
    """`bincount`, `histc` of whole numbers: what the host knows, else as many of each class, as of `one_hot`: by these
    counts a router's experts are handed their tokens.
    """
    tensor, *others = arguments
    copy = values.value_of(tensor)
    ends = [int(copy.min()), int(copy.max())] if copy is not None and copy.numel() else []
    with reads.know_next(ends):  # in this order (native/cuda/SummaryOps.cu, 2.13)
        answer = kernel.call_boxed(keys, *arguments)
    if answer.is_floating_point() or not answer.numel():  # weights, or numbers that are no classes
        return answer
    if copy is None:
        reads.count_here()
        reads.use(reads.last, 4)  # no run varies it
        each, more = divmod(tensor.numel(), answer.numel())
        counts = answer.new_tensor([each + (at < more) for at in range(answer.numel())], device="cpu")
    else:
        counts = known(copy, *others).to(answer.dtype)
    values.write(answer, counts, is_guess=copy is None)
    return answer


def _note(name: str, number_of: Any, kernel: Any, keys: Any, *arguments: Any, **named: Any) -> Any:
    """Keep what is known of an operator's answer, or of the places in it, on that."""
    answer, number = kernel.call_boxed(keys, *arguments, **named), number_of(*arguments)
    if number is not None:
        setattr(answer[1] if isinstance(answer, tuple) else answer, name, number)
    return answer


def _places_of_class(values: Any, tensor: Any, other: Any) -> int | None:
    """`classes == number`, of classes that were computed: zeros are all of class 0, and each other class has one."""
    is_computed = "int" in str(tensor.dtype) and values.value_of(tensor) is None
    return (tensor.numel() if other == 0 else 1) if is_computed else None


def _kinds_along(tensor: Any, dim: int | None = None, *_: Any) -> int:
    return int(tensor.numel() if dim is None or not tensor.dim() else tensor.shape[dim])


COUNTED = {
    "nonzero": _likely,
    **dict.fromkeys(("_unique", "_unique2"), lambda tensor, *_, **_named: getattr(tensor, KINDS, tensor.numel())),
    **dict.fromkeys(("unique_dim", "unique_dim_consecutive"), lambda tensor, dim, *_, **_named: tensor.shape[dim]),
    **dict.fromkeys(("unique_consecutive", "repeat_interleave.Tensor"), lambda tensor, *_, **_named: tensor.numel()),
}
HISTOGRAMS = {
    "bincount": lambda copy, _=None, least=0: copy.bincount(minlength=least),
    "histc": lambda copy, *others: copy.double().histc(*others),
}
CHECKED = ("normal.Tensor_Tensor", "normal.float_Tensor")  # those that refuse a negative standard deviation
# Those that read whether cuSOLVER found no answer, which is zero if it did (native/BatchLinearAlgebra.cpp, 2.13).
SOLVED = ("_linalg_check_errors", "_linalg_svd")
