"""What stands in for a function of PyTorch takes what the function takes, also by its arguments' names."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.dryrun.fake.test_scripts import traced
from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]

# Run under a trace, with every patch in place. Of a method the first argument, and of what is decorated as
# `(*args, **kwargs)` all of them, cannot be asked for by name.
EVERY = """
import gc, inspect, types
import torch
from vramtui.dryrun.fake.device.patches import Patches

def arguments(undo):
    return inspect.getclosurevars(undo).nonlocals.get("args", ())

def plain(value):
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value

def without_wrapped(function):
    again = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    again.__kwdefaults__ = function.__kwdefaults__
    return inspect.signature(again)

refused, seen = [], 0
for patches in [one for one in gc.get_objects() if isinstance(one, Patches)]:
    for owner, name, original in (given for _, undo in patches._exit_callbacks if len(given := arguments(undo)) == 3):
        before, now = plain(original), plain(vars(owner).get(name))
        if not isinstance(before, types.FunctionType) or not isinstance(now, types.FunctionType):
            continue
        asked = list(inspect.signature(before, follow_wrapped=False).parameters.values())
        is_method = isinstance(owner, type) and not isinstance(original, staticmethod)
        first = int(is_method or bool(asked) and asked[0].name == "cls")
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        named = {one.name: 0 for one in asked[first:] if one.kind in kinds}
        if not named:
            continue
        seen += 1
        act = inspect.getclosurevars(now).nonlocals.get("act")  # of `Patches.around`: it is given the plain one first
        first += (act is not None) + hasattr(act, "__self__")
        now = getattr(act, "__func__", act) or now
        try:
            without_wrapped(now).bind(*[0] * first, **named)
        except TypeError as error:
            refused.append(f"{getattr(owner, '__name__', owner)}.{name}: {error}")
assert seen > 100, seen
if refused:
    raise ValueError("; ".join(refused))
torch.zeros(1, device="cuda")
"""
BY_NAME = """
import io
import torch
net = torch.nn.Module()
net.add_module(name="layer", module=torch.nn.Linear(8, 8))
net.register_buffer(name="scale", tensor=torch.ones(8), persistent=True)
net.register_parameter(name="bias", param=torch.nn.Parameter(torch.zeros(8)))
net.cuda()
torch.save(obj=net.state_dict(), f="weights.pt")
net.load_state_dict(torch.load(f="weights.pt", map_location="cuda"))
net.layer(torch.ones(2, 8).cuda()).sum().backward()
"""


SIGNATURES = """
import inspect, json, re, sys
import torch, torch.cuda, torch.nn, torch.optim

def signatures():
    told = {}
    for owner in (torch, torch.cuda, torch.optim, torch.nn, torch.Tensor, torch.nn.Module, torch.optim.Optimizer):
        for name in dir(owner):
            one = None if name.startswith("_") else getattr(owner, name, None)
            if callable(one):
                try:
                    told[f"{owner.__name__}.{name}"] = re.sub(" at 0x[0-9a-f]+", "", str(inspect.signature(one)))
                except (TypeError, ValueError):
                    continue
    return told

from pathlib import Path
known = Path(sys.argv[1])
if not torch.cuda.is_available():
    known.write_text(json.dumps(signatures()))
else:
    before, inside = json.loads(known.read_text()), signatures()
    other = {name: (text, inside.get(name)) for name, text in before.items() if inside.get(name) != text}
    assert len(before) > 450, len(before)
    assert not other, list(other.items())
    torch.zeros(1, device="cuda")
"""


def test_every_patched_function_takes_its_arguments_by_name(tmp_path: Path) -> None:
    assert traced(tmp_path, EVERY).peak_allocated == 512


def test_modules_and_checkpoints_are_made_by_named_arguments(tmp_path: Path) -> None:
    assert traced(tmp_path, BY_NAME).peak_allocated > 512


def test_every_public_callable_keeps_its_signature(tmp_path: Path) -> None:
    """Libraries ask `inspect.signature(optimizer.zero_grad)` and the like before they pass an argument."""
    script, known = tmp_path / "signatures.py", tmp_path / "signatures.json"
    script.write_text(SIGNATURES, encoding="utf-8")
    subprocess.run([sys.executable, str(script), str(known)], check=True, timeout=240)
    result = WARM.trace(TraceRequest(path=str(script), arguments=(str(known),), device=card("H200")))
    assert result.peak_allocated == 512
