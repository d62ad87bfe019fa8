import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
import torch, torch._dispatch.python
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.flop_counter import FlopCounterMode
from vramtui.probe import emulated
emulated.prepare(torch)
ones, zeros = torch.ones(3), torch.zeros(3)
print(bool(ones.all()), bool(zeros.all()), bool(torch.all(zeros)), bool(zeros.any()), end=" ")
print(torch.equal(ones, ones), torch.equal(ones, zeros), torch.allclose(ones, zeros), ones.allclose(ones))
row, shape = torch.all(ones, dim=0, keepdim=True).tolist(), torch.distributions.Normal(zeros, ones).batch_shape
print(zeros.reshape(1, 3).all(dim=1).tolist(), row, shape)
try:
    torch.distributions.Normal(zeros, -ones)
except ValueError as error:
    print(str(error).split(" of shape")[0])
with torch._subclasses.FakeTensorMode() as mode, torch._dispatch.python.enable_python_dispatcher():
    print(mode.from_tensor(ones).shape)  # as vLLM compiles
with FlopCounterMode(display=False), torch.no_grad():
    print(TwoTensor(ones, ones) * 2.0)
print(torch.tensor([[ones.sum()], [torch.nn.Parameter(torch.tensor(2.0))]]).tolist(), end=" ")
print(torch.amp.GradScaler("cpu").get_scale(), torch.amp.GradScaler("cpu", enabled=False).get_scale())
@torch.jit.script
def is_below(x: torch.Tensor) -> bool:
    return bool(torch.all(torch.cat([x, torch.zeros_like(x)]) < 1)) and torch.equal(x, x)
print(is_below(torch.zeros(3)), is_below(torch.ones(3)))
with torch.device("meta"):
    print(torch.ones(2).device, torch.arange(2).device, torch.tensor(1).device)
"""


def printed_by(job: Path, code: str) -> list[str]:
    """The lines of a job that is a file, as what starts processes or is scripted has to be."""
    job.write_text(code, encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    ran = subprocess.run([sys.executable, str(job)], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.splitlines()


@pytest.mark.torch
@pytest.mark.slow
def test_what_is_not_on_the_card_keeps_its_own_answers(tmp_path: Path) -> None:
    assert printed_by(tmp_path / "job.py", JOB) == [
        "True False False False True False False True",
        "[False] [True] torch.Size([3])",
        "Expected parameter scale (Tensor",
        "torch.Size([3])",
        "TwoTensor(tensor([2., 2., 2.]), tensor([2., 2., 2.]))",
        "[[3.0], [2.0]] 65536.0 1.0",
        "True False",
        "meta meta meta",
    ]


IN_ONE_GRAPH = """
import pickle
import torch
from torch._dynamo.utils import counters
from vramtui.probe import emulated
emulated.prepare(torch)
net = torch.nn.Linear(8, 8)
def forward(x):
    y = torch.cat([net(x), torch.zeros_like(x)], 1)
    return torch.where(y > 0, y, torch.zeros(())).sum() + y.masked_fill(y.ge(1), 0.0).to(y.dtype).max()
for how in ("no mode", "in a device", "default device"):
    torch._dynamo.reset()
    counters.clear()
    if how == "default device":
        torch.set_default_device("cpu")
    compiled = torch.compile(forward, backend="eager")
    with torch.device("cpu") if how == "in a device" else torch.enable_grad():
        for _ in range(3):
            compiled(torch.randn(4, 8)).backward()
    print(how, dict(counters["frames"]), counters["stats"]["unique_graphs"], len(counters["graph_break"]))
    print(all(pickle.loads(pickle.dumps(one)) is one for one in (torch.cat, torch.zeros, torch.sum, torch.tensor)))
"""


@pytest.mark.torch
@pytest.mark.slow
def test_compiled_code_is_one_graph_as_without_the_probe() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_ONE_GRAPH], capture_output=True, text=True, check=True)
    one_graph = [f"{how} {{'total': 1, 'ok': 1}} 1 0" for how in ("no mode", "in a device", "default device")]
    assert ran.stdout.splitlines() == [line for graph in one_graph for line in (graph, "True")]


MEETING = """
import sys, time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from vramtui.probe import emulated
rank, mark = int(sys.argv[1]), Path(sys.argv[2])
c10d = SimpleNamespace(
    barrier=lambda group, async_op: None,
    group=SimpleNamespace(WORLD=SimpleNamespace(group_name="0/1")),
    get_rank=lambda group: rank, get_world_size=lambda group: 2, get_backend=lambda group: "nccl",
)
barrier = partial(emulated.meet_by_host, c10d, c10d.barrier)
barrier()
if rank == 1:
    time.sleep(0.5)
    mark.touch()
barrier()
print(mark.exists())
"""


def test_ranks_wait_for_each_other_at_a_barrier(tmp_path: Path) -> None:
    mark, environment = str(tmp_path / "mark"), os.environ | {"VRAMTUI_DRIVER_REPORT": str(tmp_path)}
    ranks = [
        subprocess.Popen([sys.executable, "-c", MEETING, str(rank), mark], env=environment, stdout=subprocess.PIPE)
        for rank in range(2)
    ]
    assert [rank.communicate()[0] for rank in ranks] == [b"True\n"] * 2


TUNING = """
import sys
from types import SimpleNamespace
from vramtui.probe import emulated
NEVER = float("inf")
class Autotuner:
    def _bench(self, config):
        print("timed", config)
        return [NEVER] * 3 if config == "too large" else [1.0] * 3
    def run(self):
        timings = {config: self._bench(config) for config in ("too large", "fits", "fits too")}
        return min(timings, key=timings.get)
class AlgorithmSelectorCache:
    def pick_deterministic_choice(self, choices):
        return next((one for one in choices if one.startswith("extern")), choices[0])
    def __call__(self, name, choices, layout=None):
        return name, choices, layout
class CachingAutotuner:
    def __init__(self, configs, custom_kernel):
        self.configs, self.custom_kernel = configs, custom_kernel
    maybe_clone_args, run = (lambda self, *given: print(*given, end=" ")), (lambda self, *_: "r")
    copy_args_to_cpu_if_needed = lambda self, *_: "h"
modules = {"triton.runtime.autotuner": Autotuner, "torch._inductor.select_algorithm": AlgorithmSelectorCache}
for module, kind in (modules | {"torch._inductor.runtime.triton_heuristics": CachingAutotuner}).items():
    sys.modules[module] = SimpleNamespace(**{kind.__name__: kind})
pool = sys.modules["torch._inductor.compile_worker.subproc_pool"] = SimpleNamespace(python_subprocess_env=dict)
emulated.CHANGES.put_on()
tuner, select = Autotuner(), AlgorithmSelectorCache()
print(tuner.run(), tuner.run())
print(select("mm", ["triton", "extern"], layout=1), select("mm", ["triton", "triton 2"]), select("mm", []))
print(CachingAutotuner([1, 2], False).configs, CachingAutotuner([1, 2], custom_kernel=True).configs)
cuda, empty = SimpleNamespace(get_device_properties=str, current_device=int), lambda *_, **__: print("b", end=" ")
sys.modules["torch"] = SimpleNamespace(cuda=cuda, int=int, empty=empty)
print(*[kernel.run(9) for kernel in [CachingAutotuner([1, 2], False)] * 2 + [CachingAutotuner([1], False)]])
print(pool.python_subprocess_env()["PYTHONPATH"])
"""


def test_triton_and_compilers_take_the_first_that_fits() -> None:
    environment = os.environ | {"PYTHONPATH": "probe"}
    ran = subprocess.run([sys.executable, "-c", TUNING], capture_output=True, text=True, check=True, env=environment)
    first = ["timed too large", "timed fits"] * 2 + ["fits fits"]
    compiled = ["('mm', ['extern'], 1) ('mm', ['triton'], None) ('mm', [], None)", "[1] [1, 2]"]
    assert ran.stdout.splitlines() == [*first, *compiled, "b h 9 b h 9 r r r", "probe"]


LOADING = """
import multiprocessing, sys
import torch
from vramtui.probe import emulated
def load(rank, chosen):
    emulated.CHANGES.put_on()
    loader = torch.utils.data.DataLoader(range(4), num_workers=1, multiprocessing_context=chosen)
    workers = iter(loader)._workers
    print(type(workers[0]).__name__, loader.multiprocessing_context is None)
if __name__ == "__main__":
    load(0, None)
    for chosen in (None, "forkserver"):
        torch.multiprocessing.spawn(load, (chosen,))
"""


@pytest.mark.torch
@pytest.mark.slow
def test_workers_are_forked_where_spawn_was_only_handed_down(tmp_path: Path) -> None:
    assert printed_by(tmp_path / "job.py", LOADING) == ["Process True", "ForkProcess True", "ForkServerProcess False"]
