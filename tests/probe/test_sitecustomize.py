"""The hook that brings the probe into a job: under each Python that a job may run under, from 3.8 on."""

import ast
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.probe.conftest import Start
from vramtui.probe.import_hook import when_imported
from vramtui.probe.socket_dir import UNTIL

OLDEST = (3, 8)
FILES = sorted(Path(sys.modules[when_imported.__module__].__file__ or "").parent.rglob("*.py"))
# Names of the standard library that came after 3.8, of which one is easily written without a thought.
NEWER = {
    "removeprefix", "removesuffix", "waitstatus_to_exitcode", "cache", "pairwise", "TypeAlias", "ParamSpec", "strict",
    "bit_count", "add_note", "randbytes", "to_thread", "batched", "chdir_context", "is_relative_to", "readlink",
}  # fmt: skip
# As much of PyTorch as the probe asks for: hooks on calls, backward passes and steps, and the allocator's counters.
TORCH = """\
import sys, types, collections
def module(name, **what):
    made = sys.modules[name] = types.ModuleType(name)
    vars(made).update(what)
    return made
class Handle:
    count = 0
    def __init__(self, hooks):
        Handle.count += 1
        self.id, self.hooks_dict_ref = Handle.count, lambda: hooks
calls, before, after, held = {}, {}, {}, [0, 0]
def register(hooks):
    def add(hook):
        handle = Handle(hooks)
        hooks[handle.id] = hook
        return handle
    return add
def hold(mib):
    held[0], held[1] = mib << 20, max(mib << 20, held[1])
class Module:
    def parameters(self): return iter([self])
    buffers = parameters
    def __call__(self):
        for hook in list(calls.values()): hook(self, ())
class Optimizer:
    param_groups, state = (), {}
    def step(self):
        for hook in list(before.values()): hook(self, (), {})
        hold(90)
        for hook in list(after.values()): hook(self, (), {})
def nested(device):
    both = {"all": {"current": held[0], "peak": held[1]}}
    return {"allocated_bytes": both, "reserved_bytes": both, "active_bytes": both, "inactive_split_bytes": both}
card = types.SimpleNamespace(name="Stub", total_memory=24 << 30, major=8, minor=9)
class Tensor: pass
class OutOfMemoryError(RuntimeError): pass
cuda = module("torch.cuda", is_initialized=lambda: True, device_count=lambda: 1, memory_stats_as_nested_dict=nested,
    get_device_properties=lambda index: card, OutOfMemoryError=OutOfMemoryError, _lazy_call=lambda call: call())
autograd = module("torch.autograd", backward=lambda: hold(70))
compiler = module("torch.compiler", is_compiling=lambda: False)
modules = module("torch.nn.modules.module", register_module_forward_pre_hook=register(calls))
nn = module("torch.nn", modules=module("torch.nn.modules", module=modules))
optimizers = module("torch.optim.optimizer", register_optimizer_step_pre_hook=register(before),
    register_optimizer_step_post_hook=register(after))
optim = module("torch.optim", optimizer=optimizers)
__version__ = "2.4.1+stub"
"""
JOB = """\
import torch
model, optimizer = torch.Module(), torch.Optimizer()
torch.hold(30)
for _ in range(2):
    model()
    torch.hold(50)
    torch.autograd.backward()
    optimizer.step()
print("trained")
"""


# Its time is over once it has trained, however long that takes.
CLOCK = """\
import threading, time
is_over, for_real = threading.Event(), time.sleep
time.sleep = lambda seconds: is_over.wait() if 800 < seconds <= 1000 else for_real(seconds)
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_what_travels_into_a_job_has_nothing_that_python_3_8_cannot_read(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source, feature_version=OLDEST)
    later = {id(node) for hidden in _never_evaluated(tree) for node in ast.walk(hidden)}
    if later:
        assert "from __future__ import annotations" in source
    for node in ast.walk(tree):
        if id(node) in later:
            continue
        name = getattr(node, "attr", None) or getattr(node, "arg", None) or getattr(node, "id", None)
        assert name not in NEWER, f"{path.name}:{node.lineno} uses {name}"  # type: ignore[attr-defined]  # it has a name
        generic = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id
        assert generic not in {"dict", "list", "tuple", "set", "frozenset", "type", "Callable", "Iterable", "Iterator"}


def _never_evaluated(tree: ast.AST) -> Iterator[ast.AST]:
    """Annotations that need more than a name, and what only a type checker reads."""
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if isinstance(annotation, (ast.Subscript, ast.BinOp)):
                yield annotation
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield from node.body


def _pythons() -> dict[str, str]:
    """Other interpreters that are at hand, by their release; of an environment manager's shims the program itself."""
    found = {}
    for minor in range(OLDEST[1], 16):
        program = shutil.which(f"python3.{minor}")
        versions = Path.home() / ".pyenv" / "versions"
        for path in (*([Path(program)] if program else ()), *versions.glob(f"3.{minor}.*/bin/python3")):
            ask = [str(path), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
            if "shims" not in path.parts and _answer(ask) == f"3.{minor}":
                found[f"3.{minor}"] = str(path)
    return found


def _answer(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout.strip()
    except OSError:
        return ""


def test_a_job_tells_its_phases_under_every_python_at_hand(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for release, python in ({here: sys.executable} | _pythons()).items():
        heard = start(str(tmp_path / "job.py"), python=python, PATH=os.environ["PATH"])
        assert (release, heard.code, heard.stdout, heard.stderr) == (release, 0, "trained\n", "")
        hello = heard.job.hello
        assert hello is not None
        assert (hello.python.rpartition(".")[0], hello.torch) == (release, "2.4.1+stub")
        told = [(end.phase, end.step, (end.allocated or 0) >> 20) for end in heard.job.moments]
        assert told[:4] == [("build", 0, 30), ("forward", 0, 50), ("backward", 0, 70), ("step", 0, 90)], release
        assert heard.job.end is not None
        assert heard.job.end.error is None


def test_a_job_is_ended_when_its_time_is_over_and_tells_so(start: Start, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(CLOCK + TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(f"{JOB}torch.is_over.set()\ntorch.threading.Event().wait()\n", encoding="utf-8")
    heard = start(str(tmp_path / "job.py"), **{UNTIL: str(int(time.monotonic()) + 1000)})
    assert (heard.code, heard.stdout, heard.stderr) == (0, "trained\n", "")
    assert heard.job.end is not None
    assert heard.job.beat is not None
    assert heard.job.beat.step == 2
