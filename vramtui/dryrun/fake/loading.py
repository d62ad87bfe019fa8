"""Data loaders, threads and checkpoints of the code while a session lasts."""

import contextlib
import inspect
import io
import os
import pickle
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.storage
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.data import DataLoader

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.result import ONE_PROCESS
from vramtui.probe.import_hook import when_imported

_MARK = b"vramtui: tensors without values\n"
_OF_WORKERS = ("timeout", "prefetch_factor", "multiprocessing_context", "persistent_workers", "in_order")
NOTE = "torch.save packs tensors without values into a buffer: what the code writes of it to a file is of no use later"


def install(patches: Patches, memory: SimulatedMemory, modes: tuple[Any, ...], *, shielded: bool) -> None:
    """Load batches in this process, follow threads, and keep what the code saves so that it can load it again."""
    saved: dict[str, bytes] = {}

    @patches.around(torch, "load")
    def load(plain: Any, f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if (pickled := _marked(f) or saved.get(_place_of(f))) is not None:
            again = pickle.loads(pickled)  # noqa: S301 - this session has made it
            return again if map_location is None else _moved(again, map_location, {})
        places: dict[int, str] = {}

        def note(storage: Any, location: str) -> Any:
            places[storage._cdata] = location
            return storage

        with _disable_current_modes():
            read = plain(f, note, *args, **kwargs)
        return _moved(read, map_location, places)

    @patches.around(torch, "save")
    def save(plain: Any, obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if sys._getframe(2).f_code.co_filename == torch.storage.__file__:  # a real storage that is being pickled
            plain(obj, f, *args, **kwargs)
            return
        pickled = io.BytesIO()
        pickler = _Pickler(pickled)
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError, NotImplementedError):
            pickler.dump(obj)
            if not pickler.without_values:
                with _disable_current_modes():
                    plain(obj, f, *args, **kwargs)
                return
            saved[_place_of(f)] = pickled.getvalue()
            if isinstance(f, io.BytesIO):
                memory.warn(NOTE)
            if isinstance(f, io.BytesIO) or (shielded and not isinstance(f, (str, os.PathLike))):
                f.write(_MARK + pickled.getvalue())
            elif shielded:
                Path(f).write_bytes(_MARK + pickled.getvalue())

    def keep_safetensors(module: ModuleType) -> None:
        @patches.around(module, "save_file")
        def save_file(plain: Any, tensors: Any, filename: Any, *args: Any, **kwargs: Any) -> None:
            if any(isinstance(one, FakeTensor) for one in tensors.values()):  # there is nothing at its address
                torch.save(dict(tensors), filename)
            else:
                plain(tensors, filename, *args, **kwargs)

        @patches.around(module, "load_file")
        def load_file(plain: Any, filename: Any, device: Any = "cpu", *args: Any, **kwargs: Any) -> Any:
            is_ours = _place_of(filename) in saved or _marked(filename) is not None
            return torch.load(filename, device) if is_ours else plain(filename, device, *args, **kwargs)

    when_imported("safetensors.torch", keep_safetensors)
    from_buffer = torch.UntypedStorage.from_buffer

    def read_buffer(*args: Any, **kwargs: Any) -> Any:
        """Keep the values, which a fake mode drops (2.13, torch/csrc/StorageMethods.cpp)."""
        with _disable_current_modes():
            return from_buffer(*args, **kwargs)

    patches.set(torch.UntypedStorage, "from_buffer", staticmethod(read_buffer))
    signature = inspect.signature(DataLoader.__init__)

    @patches.around(DataLoader, "__init__")
    def construct(plain: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.arguments.pop("pin_memory", None)
        if given.arguments.get("num_workers"):
            given.arguments["num_workers"] = 0
            for name in _OF_WORKERS:
                given.arguments.pop(name, None)
        plain(*given.args, **given.kwargs)

    @patches.around(BaseProcess, "start")
    def start(plain: Any, process: BaseProcess) -> None:
        does = getattr(process, "_target", None) or type(process)
        if does.__module__.partition(".")[0] not in sys.stdlib_module_names:  # not of a pool or a manager
            memory.bounded = True
            memory.warn(f"bounded: {memory.user_line()} starts a process: {ONE_PROCESS}")
        plain(process)

    @patches.around(threading.Thread, "run")
    def run(plain: Any, thread: threading.Thread) -> None:
        with contextlib.ExitStack() as entered:
            for mode in modes:
                entered.enter_context(mode)
            plain(thread)


class _Pickler(pickle.Pickler):
    without_values = 0

    def reducer_override(self, obj: Any) -> Any:
        self.without_values += isinstance(obj, FakeTensor)
        return NotImplemented


def _marked(file: Any) -> bytes | None:
    """The content of a file that `save` has written, whoever has copied it since; None of any other."""
    with contextlib.suppress(OSError):
        if isinstance(file, (str, os.PathLike)):
            with Path(file).open("rb") as opened:
                return _marked(opened)
        if hasattr(file, "read") and hasattr(file, "seek"):
            if file.read(len(_MARK)) == _MARK:
                return bytes(file.read())
            file.seek(0)
    return None


def _place_of(file: Any) -> str:
    """The path of a file, whoever has opened it, or which buffer it is."""
    if not isinstance(file, (str, os.PathLike)):
        file = getattr(file, "name", None) or getattr(file, "path", None) or file
    return os.path.realpath(file) if isinstance(file, (str, os.PathLike)) else f"buffer {id(file)}"


def _moved(read: Any, map_location: Any, places: dict[int, str]) -> Any:
    """Move what was read as torch/serialization.py does (`_get_restore_location`); `places` has the saved locations."""

    def target(location: str) -> torch.device:
        if isinstance(map_location, (str, torch.device)):
            return torch.device(map_location)
        if isinstance(map_location, dict):
            location = map_location.get(location, location)
        elif map_location is not None and (wanted := map_location(_storage("cpu"), location)) is not None:
            return torch.device(wanted.device)
        return torch.device("cuda" if location.startswith("cuda") else "cpu")

    def move(tensor: torch.Tensor) -> torch.Tensor:
        device = target("cuda:0" if tensor.is_cuda else places.get(tensor.untyped_storage()._cdata, "cpu"))
        return tensor if device.type == "cpu" and not tensor.is_cuda else tensor.to(device)

    return read._apply(move) if isinstance(read, torch.nn.Module) else pytree.tree_map_only(torch.Tensor, move, read)


def _storage(device: Any) -> Any:
    """A stand-in for the storage that a `map_location` function moves."""

    def moved(to: Any = None, **_kwargs: Any) -> Any:
        return _storage("cuda" if to is None or isinstance(to, int) else to)

    return SimpleNamespace(device=torch.device(device), cuda=moved, to=moved, cpu=lambda: _storage("cpu"))
