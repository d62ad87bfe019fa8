"""What real jobs tell of themselves, and that they run as if nobody listened."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.probe.conftest import JOBS, Start
from vramtui.core.observation.probe_messages import HostBatches

MIB = 1 << 20
WEIGHTS = 4 * (32 * 64 + 64 + 64 * 8 + 8)


@pytest.mark.torch
def test_a_job_tells_its_steps_and_what_its_optimizer_holds(start: Start) -> None:
    heard = start(str(JOBS / "train.py"), "5", RANK="3", LOCAL_RANK="1", WORLD_SIZE="4")
    assert (heard.code, heard.stdout, heard.stderr, heard.malformed) == (0, "trained\n", "", 0)
    job = heard.job
    assert (job.hello.rank, job.beat.step, job.hello.command) == (3, 5, (str(JOBS / "train.py"), "5"))
    # Adam keeps two moments, and a step counter of four bytes for each of the four parameters.
    assert job.parts == {
        "weights": {"cpu": WEIGHTS},
        "gradients": {"cpu": WEIGHTS},
        "optimizer": {"cpu": 2 * WEIGHTS + 16},
    }
    assert (job.end.error, job.gone, job.peaks) == (None, True, {})


@pytest.mark.torch
def test_each_child_that_trains_tells_of_itself_and_a_worker_nothing(start: Start) -> None:
    heard = start(str(JOBS / "family.py"))
    assert (heard.code, heard.stderr) == (0, "")
    parent, spawned, forked = map(int, heard.stdout.split())
    steps = {job.pid: job.beat.step for job in heard.jobs if job.beat is not None}
    assert steps == {parent: 2, spawned: 3, forked: 4}
    assert all(job.end is not None and job.gone for job in heard.jobs)
    loaders = {job.pid: job.beat.loaders for job in heard.jobs if job.beat is not None}
    kept = HostBatches(workers=2, prefetch=2, pinned=False, batch=16, locked=16)
    assert loaders == {parent: (kept,), spawned: (), forked: ()}


@pytest.mark.torch
def test_torchrun_starts_ranks_of_a_module_that_tell_theirs(start: Start) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    heard = start(*torchrun, "--module", "train", "2", PYTHONPATH=str(JOBS))
    assert heard.code == 0, heard.stderr
    ranks = {job.hello.rank: job.beat.step for job in heard.jobs if job.hello is not None and job.beat is not None}
    assert ranks == {0: 2, 1: 2}


@pytest.mark.torch
def test_the_allocators_counters_are_told_phase_by_phase(start: Start) -> None:
    heard = start(str(JOBS / "fake_cuda.py"), "fits")
    assert (heard.code, heard.stderr, heard.malformed) == (0, "", 0)
    job = heard.job
    first = job.hello.devices[0]
    assert (first.name, first.total_memory, first.capability) == ("Fake RTX", 24 << 30, (8, 9))
    assert list(job.peaks) == [0]
    peaks = job.peaks[0]
    assert (peaks.allocated_peak, peaks.reserved_peak) == (1100 * MIB, 1200 * MIB)
    assert (peaks.num_alloc_retries, peaks.num_ooms) == (0, 0)
    told = [
        (end.phase, end.step, (end.allocated or 0) // MIB, (end.peak_allocated or 0) // MIB)
        for end in job.moments
        if end.step < 3 and end.device == 0
    ]
    assert told == [
        ("build", 0, 100, 100),
        ("forward", 0, 500, 600),
        ("backward", 0, 200, 900),
        ("step", 0, 200, 0),  # nothing was higher than before: its own peak is not known
        ("input", 1, 300, 0),
        ("forward", 1, 700, 0),
        ("backward", 1, 400, 1100),
        ("step", 1, 400, 0),
        ("input", 2, 300, 0),
        ("forward", 2, 700, 0),
        ("backward", 2, 400, 0),
        ("step", 2, 400, 0),
    ]


@pytest.mark.torch
def test_a_job_that_dies_of_memory_says_so_with_every_figure(start: Start) -> None:
    heard = start(str(JOBS / "fake_cuda.py"), "oom")
    assert heard.code == 1
    assert "OutOfMemoryError: CUDA out of memory." in heard.stderr
    job = heard.job
    (oom,) = job.ooms
    assert (oom.device, oom.asked, oom.free, oom.limit) == (0, 2048 * MIB, 512 * MIB, None)
    assert (oom.allocated, oom.reserved, oom.phase, oom.step) == (700 * MIB, 900 * MIB, "backward", 1)
    assert (job.end.error, job.end.out_of_memory) == ("OutOfMemoryError", True)


@pytest.mark.torch
def test_a_job_that_survives_it_goes_on_being_told_of(start: Start) -> None:
    """With the limit that it set itself, which the allocator tells in the place of the card's total."""
    job = start(str(JOBS / "fake_cuda.py"), "caught").job
    (oom,) = job.ooms
    assert (oom.asked, oom.limit) == (2048 * MIB, 1024 * MIB)
    assert not job.end.out_of_memory
    assert job.beat.step == 3


def test_a_job_without_torch_runs_as_if_nobody_were_there(start: Start) -> None:
    heard = start(str(JOBS / "plain.py"), "--flag", "a b")
    alone = subprocess.run(
        [sys.executable, str(JOBS / "plain.py"), "--flag", "a b"], capture_output=True, text=True, check=True
    )
    assert (heard.code, heard.stdout, heard.stderr, heard.jobs) == (0, alone.stdout, "", ())


def test_sitecustomize_of_the_site_is_loaded_and_as_broken_as_before(start: Start, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('the site')\n", encoding="utf-8")
    heard = start(str(JOBS / "plain.py"), PYTHONPATH=str(tmp_path))
    assert heard.stdout == f"the site\n[[], [], 1, [], '{tmp_path / 'sitecustomize.py'}']\n"
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('broken')\n", encoding="utf-8")
    heard = start(str(JOBS / "plain.py"), PYTHONPATH=str(tmp_path))
    assert heard.code == 0
    assert "RuntimeError: broken" in heard.stderr
    assert heard.stdout == "[[], [], 1, [], None]\n"


@pytest.mark.torch
def test_with_nobody_to_tell_a_job_runs_on(start: Start, tmp_path: Path) -> None:
    heard = start(str(JOBS / "train.py"), VRAMTUI_PROBE=str(tmp_path / "none.run"), XDG_RUNTIME_DIR=str(tmp_path))
    assert (heard.code, heard.stdout, heard.stderr, heard.jobs) == (0, "trained\n", "", ())


@pytest.mark.torch
def test_nothing_is_left_on_what_the_job_copies_and_saves(start: Start) -> None:
    program = (
        "import copy, io, no_compiler, torch, sys\n"
        "assert '_vramtui_probe.session' in sys.modules\n"
        "assert type(torch.__spec__.loader).__module__ != '_vramtui_probe.import_hook'\n"
        "model = torch.nn.Sequential(torch.nn.Linear(2, 2)); model(torch.ones(1, 2)).sum().backward()\n"
        "optimizer = torch.optim.SGD(model.parameters()); optimizer.step(); model(torch.ones(1, 2))\n"
        "assert not torch.nn.modules.module._has_any_global_hook()\n"
        "for module in model.modules(): assert not module._forward_hooks and not module._forward_pre_hooks\n"
        "file = io.BytesIO(); torch.save([copy.deepcopy(model), optimizer], file)\n"
        "assert b'vramtui' not in file.getvalue()\n"
    )
    heard = start("-c", program, PYTHONPATH=str(JOBS))
    assert (heard.code, heard.stderr) == (0, "")


@pytest.mark.torch
def test_compiled_code_is_compiled_no_differently(start: Start) -> None:
    program = (
        "import torch, torch._dynamo.utils as seen\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__(); self.first = torch.nn.Linear(4, 4); self.last = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x): return self.last(self.first(x).relu())\n"
        "model = Model(); optimizer = torch.optim.SGD(model.parameters())\n"
        "for part in (model, model.forward):\n"
        "    torch._dynamo.reset(); seen.counters.clear()\n"
        "    compiled = torch.compile(part, backend='eager')\n"
        "    for _ in range(4): compiled(torch.ones(2, 4)).sum().backward(); optimizer.step()\n"
        "    print(dict(seen.counters['stats']), dict(seen.counters['graph_break']))\n"
    )
    heard = start("-c", program)
    assert (heard.code, heard.stderr) == (0, "")
    assert heard.stdout == 2 * "{'calls_captured': 3, 'unique_graphs': 1} {}\n"
    assert heard.job.beat.step == 8


@pytest.mark.torch
def test_a_line_of_code_does_the_same(start: Start, runtime: Path) -> None:
    program = "import no_compiler, torch, vramtui.probe, sys; vramtui.probe.start(); vramtui.probe.start()\n"
    program += "model = torch.nn.Linear(2, 2); model(torch.ones(1, 2)).sum().backward()\n"
    program += "torch.optim.SGD(model.parameters()).step()\n"
    program += "print('vramtui.probe.session' in sys.modules, '_vramtui_probe.session' in sys.modules)\n"
    assert runtime.is_dir()
    heard = start("-c", program, PYTHONPATH=str(JOBS))
    assert (heard.code, heard.stdout, heard.stderr) == (0, "False True\n", "")
    assert heard.job.beat.step == 1
