"""What a traced script finds around it: its arguments, its folder, its name, and who listens."""

import functools
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.dryrun.child import CancelledError
from vramtui.dryrun.estimate import request_of
from vramtui.dryrun.fake import run
from vramtui.dryrun.fake.run import TraceFailedError, TraceTimeoutError, trace
from vramtui.dryrun.result import DryRun, Progress, TraceRequest
from vramtui.probe.peak import is_own

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_children")]
STEP = """
import torch
net = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def traced(folder: Path, text: str, function: str | None = None, *arguments: str, **how: Any) -> DryRun:
    (path := folder / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return trace(TraceRequest(path=str(path), function=function, arguments=arguments, device=card("A100"), **how))


def test_a_script_is_main_beside_its_own_modules_with_its_arguments(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WIDTH = 16", encoding="utf-8")
    result = traced(
        tmp_path,
        """
        import sys
        from beside import WIDTH
        import torch
        assert sys.argv[1:] == ["--flag", "2"], sys.argv
        assert sys.argv[0].endswith("script.py")
        if __name__ == "__main__":
            kept = torch.zeros(WIDTH, WIDTH, device="cuda")
        """,
        None,
        "--flag",
        "2",
    )
    assert result.peak_allocated == 1024


COPIED = """
import os, shutil
import safetensors.torch
import torch
net = torch.nn.Linear(64, 64).cuda()
os.makedirs("kept", exist_ok=True)
torch.save({"net": net.state_dict(), "epoch": 1}, "kept/last.pt")
shutil.copyfile("kept/last.pt", "kept/best.pt")
with open("kept/opened.pt", "wb") as opened:
    torch.save(net.state_dict(), opened)
os.rename("kept/opened.pt", "kept/moved.pt")
net.load_state_dict(torch.load("kept/best.pt")["net"])
net.load_state_dict(torch.load("kept/moved.pt", weights_only=True))
assert torch.load("kept/best.pt")["epoch"] == 1
torch.cuda.random.set_rng_state_all([torch.cuda.random.get_rng_state()])
safetensors.torch.save_file(net.state_dict(), "kept/model.safetensors")
assert safetensors.torch.load_file("kept/model.safetensors", "cuda")["bias"].is_cuda
net(torch.randn(8, 64, device="cuda")).sum().backward()
"""


def test_a_checkpoint_that_is_saved_can_be_copied_moved_and_loaded_again(tmp_path: Path) -> None:
    traced(tmp_path, COPIED)
    assert not (tmp_path / "kept").exists()


SCRIPTED = """
import sys
import torch
import torch.distributed.optim.functional_adadelta  # compiles a class when it is imported
width = int(sys.argv[1])
@torch.jit.script
def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.zeros_like(x)) * 2
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(width, width)
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))
net = torch.jit.script(Net().cuda())
for _ in range(3):
    doubled(net(torch.randn(1024, width, device="cuda"))).sum().backward()
"""


# Peaks of the real PyTorch 2.13 CUDA build of these lines.
@pytest.mark.parametrize(("width", "peak"), [(64, 18_450_432), (1024, 50_607_616)])
def test_what_torchscript_compiles_is_traced(tmp_path: Path, width: int, peak: int) -> None:
    assert traced(tmp_path, SCRIPTED, None, str(width)).peak_allocated == peak


NORMED = """
import sys
import torch
images, dimensions, expected = map(int, sys.argv[1:])
if dimensions == 3:
    norm, made = torch.nn.BatchNorm1d(64).cuda(), torch.randn(images, 40, 64, device="cuda")
else:
    norm, made = torch.nn.BatchNorm2d(64).cuda(), torch.randn(images, 8, 64, 8, device="cuda")
made = made.transpose(1, 2).requires_grad_()
before = torch.cuda.memory_allocated()
out = norm(made)
out.sum().backward()
assert torch.cuda.max_memory_allocated() - before == expected, torch.cuda.max_memory_allocated() - before
"""


# Peaks of the real PyTorch 2.13 CUDA build.
@pytest.mark.parametrize(
    ("images", "dimensions", "peak"),
    [(3, 3, 125_952), (70, 3, 2_870_272), (700, 3, 28_675_072), (3, 4, 199_680), (700, 4, 45_878_272)],
)
def test_batch_norm_in_cudnn_copies_an_input_and_a_gradient_that_lie_otherwise(
    tmp_path: Path, images: int, dimensions: int, peak: int
) -> None:
    traced(tmp_path, NORMED, None, str(images), str(dimensions), str(peak))


BYTES = """
import pickle
import torch
said = pickle.dumps(list(range({length})))
made = torch.ByteTensor(torch.ByteStorage.from_buffer(said))
assert made.tolist() == list(said) == torch.frombuffer(bytearray(said), dtype=torch.uint8).tolist()
made = made.to("cuda")
assert made.is_cuda and made.numel() == len(said)
"""


@pytest.mark.parametrize("length", [1, 65, 1025, 70000])
def test_bytes_of_the_host_keep_their_values_on_the_way_to_the_card(tmp_path: Path, length: int) -> None:
    assert traced(tmp_path, BYTES.format(length=length)).peak_allocated >= 512


def test_a_validation_between_steps_does_not_count_as_a_batch_of_another_size(tmp_path: Path) -> None:
    result = traced(
        tmp_path,
        STEP
        + """
import copy
for step in range(3):
    with torch.no_grad():
        net(torch.randn(64, 8, device="cuda"))
    kept = copy.deepcopy(net.state_dict()), torch.zeros(1 << 22, device="cuda")
    net(torch.randn(1 << 16, 8, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
""",
    )
    assert not any("batches differ" in note for note in result.warnings)


@pytest.mark.parametrize("passes", [1, 3, 40])
def test_passes_before_there_is_an_optimizer_are_no_steps_of_training(passes: int, tmp_path: Path) -> None:
    result = traced(
        tmp_path,
        f"""
        import torch
        net = torch.nn.Linear(8, 8).cuda()
        with torch.no_grad():
            for game in range({passes}):
                net(torch.randn(64, 8, device="cuda"))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(9):
            net(torch.randn(1 << 16, 8, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    )
    assert [row.step for row in result.timeline if row.phase == "backward"] == [0, 1, 2]


def test_a_function_is_called_in_a_module_that_is_not_main(tmp_path: Path) -> None:
    result = traced(
        tmp_path,
        """
        import torch
        def main():
            return torch.zeros(128, device="cuda")
        if __name__ == "__main__":
            raise SystemExit("not as a script")
        """,
        "main",
    )
    assert result.timeline[-1].peak_allocated == 512


CATCHING = "    try:\n        optimizer.step()\n    except Exception:\n        raise SystemExit(3)\n"


@pytest.mark.parametrize(("call", "step"), [("net(", CATCHING), ("net.forward(", "    optimizer.step()\n")])
def test_it_ends_after_the_steps_however_long_the_script_goes_on(tmp_path: Path, call: str, step: str) -> None:
    """Also where forward is called by its name, as layers do that each train themselves."""
    loop = (
        f"while True:\n    {call}torch.randn(4, 8, device='cuda')).sum().backward()\n{step}    optimizer.zero_grad()\n"
    )
    assert max(row.step for row in traced(tmp_path, STEP + loop, steps=2).timeline) == 1


GAN = """
import torch
g, d = torch.nn.Linear(64, 64).cuda(), torch.nn.Linear(64, 1).cuda()
og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
for i in range(9):
    x = g(torch.randn(8, 64, device="cuda"))
    og.zero_grad(); d(x).mean().backward(); og.step()
    od.zero_grad(); d(x.detach()).mean().backward(); od.step()
    if i == 0:
        g(torch.randn(40000, 64, device="cuda"))
"""


def test_a_step_is_one_of_each_optimizer(tmp_path: Path) -> None:
    """As for `vramtui run`: what comes after both have stepped once is not behind the third step."""
    result = traced(tmp_path, GAN, steps=3)
    assert [row.step for row in result.timeline if row.phase == "step"] == [0, 0, 1, 1, 2]
    assert [row.step for row in result.timeline if row.phase == "backward"] == [0, 0, 1, 1, 2]
    assert result.peak_allocated > 2 * 40000 * 64 * 4


def test_a_script_that_ends_well_is_done(tmp_path: Path) -> None:
    result = traced(tmp_path, "import sys, torch\nx = torch.zeros(1, device='cuda')\nsys.exit(0)\n")
    assert result.peak_allocated == 512


def test_what_it_said_and_where_it_failed_come_with_the_error(tmp_path: Path) -> None:
    with pytest.raises(TraceFailedError) as caught:
        traced(
            tmp_path,
            """
            import torch
            print("so far")
            def load():
                torch.zeros(3, device="cuda") @ torch.zeros(4, device="cuda")
            load()
            """,
        )
    assert caught.value.output[0] == "so far"
    assert [frame.partition("script.py")[2] for frame in caught.value.frames] == [
        ":6 in <module>: load()",
        ':5 in load: torch.zeros(3, device="cuda") @ torch.zeros(4, device="cuda")',
    ]


ABORTS = "def last():\n    os.abort()\nsys.stderr.write('  what():  no such device\\n')\nlast()\n"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("sys.exit(3)\n", "the job ended with 3"),
        ("sys.exit('no data')\n", "the job ended with 1: no data"),
        ("os._exit(7)\n", "the job ended with 7 before"),
        (ABORTS, r"SIGABRT at .*script\.py:3: no such device; .* limit of the trace"),  # as C++ does at an exception
    ],
)
def test_how_a_process_ends_is_told(tmp_path: Path, code: str, said: str) -> None:
    with pytest.raises(TraceFailedError, match=said):
        traced(tmp_path, f"import os, sys\n{code}")


def test_a_trace_can_be_watched_and_called_off(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(STEP + "import time\nnet(torch.zeros(1, 8, device='cuda')).sum().backward()\ntime.sleep(1000)\n")
    cancel, seen = threading.Event(), []

    def watch(progress: Progress) -> None:
        if progress.line is not None or progress.notice:
            return  # the phase goes on
        seen.append(progress.phase)
        if progress.phase == "backward":
            cancel.set()

    with pytest.raises(CancelledError):
        trace(TraceRequest(path=str(path), device=card("A100")), progress=watch, cancel=cancel)
    assert seen == ["model", "optimizer", "input", "forward", "backward"]


LONG_STEP = f"""{STEP}
import time
for batch in range(3):
    x = torch.zeros(1, 8, device="cuda")
    net(x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    while batch == 1:
        x = x.cos(); time.sleep(0.001)
"""
IN_LONG_STEP = r"in input of step 2, at script\.py:13$"


def watch_long_step(folder: Path, then: Callable[[], None], **how: Any) -> None:
    """Trace it, and call `then` once its loop is running."""

    def watch(progress: Progress) -> None:
        if progress.step == 2 and (progress.line or "").endswith(":13"):
            then()

    (folder / "script.py").write_text(LONG_STEP, encoding="utf-8")
    trace(TraceRequest(path="script.py", device=card("A100")), progress=watch, **how)


def test_a_trace_that_is_stopped_says_what_it_was_doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt, match=f"^the trace was stopped {IN_LONG_STEP}"):
        watch_long_step(tmp_path, Mock(side_effect=KeyboardInterrupt))  # as Ctrl-C; test_trace_command sends a real one


def test_a_trace_that_takes_too_long_says_what_it_was_doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    passed = [0.0]
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + passed[0]))
    with pytest.raises(TraceTimeoutError, match=f"^the trace was ended after 900 s, {IN_LONG_STEP}"):
        watch_long_step(tmp_path, functools.partial(passed.__setitem__, 0, 1000.0), timeout=900)


def test_the_nearest_file_to_one_that_a_preset_names_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    workload = Workload(model=TorchModel(file=str(tmp_path / "trian.py")), run=TrainRun())
    with pytest.raises(UserError, match=r"trian.py does not exist \(did you mean .*train.py\?\)"):
        request_of(workload, card("A100"))


def test_lines_of_installed_packages_are_not_the_jobs_own() -> None:
    others = ("/opt/lib/python3.12/site-packages/torch/nn/linear.py", "/usr/lib/python3/dist-packages/torch/adam.py")
    assert [is_own(path) for path in ("/project/train.py", "<string>", *others)] == [True, False, False, False]


LOOP = """
import torch
net = torch.nn.Linear(64, 64).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
best = 9
for rows in {rows}:
    loss = net(torch.randn(rows, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if {stops}:
        break
    best = loss.item()
"""


def test_a_value_that_ends_the_code_is_told_as_the_constant_that_it_is(tmp_path: Path) -> None:
    result = traced(tmp_path, LOOP.format(rows=[8] * 9, stops="int(loss.item()) >= int(best)"), steps=6)
    (note,) = (sentence for sentence in result.warnings if "ended itself" in sentence)
    assert "after 2 of 6 steps" in note
    assert "script.py:11" in note
    for stops in ("0", "loss.item() >= best"):  # a healthy job goes on
        assert "ended itself" not in str(traced(tmp_path, LOOP.format(rows=[8] * 9, stops=stops)).warnings)


def test_batches_of_other_sizes_and_what_each_step_keeps_are_told_of(tmp_path: Path) -> None:
    differ = traced(tmp_path, LOOP.format(rows=[1 << 16, 1 << 18, 1 << 17], stops="0"), keep_files=True)
    assert any("16.0 MiB to 64.0 MiB of inputs" in sentence for sentence in differ.warnings)
    appends = "globals().setdefault('kept', []).append(torch.empty(1 << 20, device='cuda'))"
    same, keeps = (traced(tmp_path, LOOP.format(rows=[64] * 9, stops=one), keep_files=True) for one in ("0", appends))
    assert "batches differ" not in str(same.warnings)
    assert ("each step keeps 4.0 MiB more" in str(keeps.warnings), keeps.bounded, same.bounded) == (True, True, False)


# Optimizers in such turns, 8 with a larger batch: MiB that each step keeps, and at the peak, and a note if any.
TURNS = {"range(9)": (0, 55, ""), "[*[0] * 5, 8]": (0, 50, ""), "[0, 8]": (2, 54, "each step keeps 2.0 MiB more than")}
TURNS |= {"[0]": (0, 25, "fewer than two steps until the job was ended after 24")}
TAKING = """
import torch
kept, turns = [], {turns}
nets = {{at: torch.nn.Linear(256, 256).cuda() for at in (0, 8, *turns)}}
opts = {{at: torch.optim.Adam(net.parameters()) for at, net in nets.items()}}
for _ in range(99):
    kept.append(torch.ones({grows} << 18, device="cuda"))
    for at in turns:
        nets[at](torch.randn(2048 << at // 3, 256, device="cuda")).relu().mean().backward()
        opts[at].step()
        opts[at].zero_grad()
"""


@pytest.mark.parametrize("turns", TURNS)
def test_each_optimizer_is_waited_for(tmp_path: Path, turns: str) -> None:
    grows, size, note = TURNS[turns]
    whole = traced(tmp_path, TAKING.format(turns=turns, grows=grows))  # it runs on to its end
    assert (whole.peak_allocated >> 20, whole.bounded) == (size + 97 * grows, False)
    steps = traced(tmp_path, TAKING.format(turns=turns, grows=grows), keep_files=True)
    assert (steps.peak_allocated >> 20, steps.bounded, note in str(steps.warnings)) == (size, bool(note), True)


def test_a_card_that_is_too_small_is_told_with_what_is_missing(tmp_path: Path) -> None:
    code = "import torch\nkept = [torch.zeros(1 << 30, dtype=torch.uint8, device='cuda') for _ in range(99)]"
    result = traced(tmp_path, code)
    assert result.asked == 1 << 30
    assert result.missing is not None
    held = result.total_memory - result.context - result.peak_reserved
    assert result.missing == (1 << 30) - held
