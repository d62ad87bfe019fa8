"""The training job that `probe_overhead.py` measures: with the probe's hooks and without them, in turns.

It is started by that script and answers on its standard output with one JSON document. One process does both: two would
differ in where their memory lies by more than what is looked for here.
"""

# ruff: noqa: SLF001, ANN401 - it takes hooks off and puts them on, where torch and the probe keep them

import gc
import json
import sys
import time
import tracemalloc
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules import module
from torch.optim import optimizer

KINDS = ("allocated_bytes", "reserved_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes", "allocation")
MORE_KINDS = ("segment", "active", "inactive_split", "oversize_allocations", "oversize_segments")
WARM = 5  # steps before anything is measured


def stats(_device: int) -> dict[str, Any]:
    """As many entries as torch's own answer has, made anew for each call as that is."""
    made: dict[str, Any] = {
        kind: {
            pool: {"current": 1 << 30, "peak": 1 << 31, "allocated": 1 << 40, "freed": 1 << 39}
            for pool in ("all", "small_pool", "large_pool")
        }
        for kind in (*KINDS, *MORE_KINDS)
    }
    made["num_alloc_retries"] = made["num_ooms"] = 0
    return made


class Properties:
    """A device that is not there."""

    name, total_memory, major, minor = "fake", 1, 9, 0


def pretend() -> None:
    """Let `torch.cuda` say that it is in use."""
    fakes = {
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "memory_stats_as_nested_dict": stats,
        "get_device_properties": lambda _index: Properties,
    }
    for name, fake in fakes.items():
        setattr(torch.cuda, name, fake)
    setattr(torch._C, "_cuda_attach_out_of_memory_observer", lambda _observer: None)  # noqa: B010 - not in the stubs


class Training:
    """So many layers, trained by AdamW on one thread of the CPU."""

    def __init__(self, layers: int, rows: int = 128) -> None:
        torch.manual_seed(0)
        block = (torch.nn.Sequential(torch.nn.Linear(96, 96), torch.nn.GELU()) for _ in range(layers))
        self.model = torch.nn.Sequential(*block)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), foreach=True)
        self.data = torch.randn(rows, 96)

    def steps(self, count: int) -> None:
        """So many optimizer steps."""
        for _ in range(count):
            torch.autograd.backward(self.model(self.data).square().mean())
            self.optimizer.step()
            self.optimizer.zero_grad()


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is asked for: steps of one job, steps between two turns, pairs at most, seconds after which none begins."""

    steps: int
    block: int
    pairs: int
    seconds: float
    layers: int


class Switch:
    """Puts the probe's hooks off and on again; its budget and its pulse stand still while they are off."""

    def __init__(self) -> None:
        begin = time.thread_time_ns()
        import vramtui.probe  # noqa: PLC0415 - what it takes is measured
        from vramtui.probe.session import ProbeSession  # noqa: PLC0415 - as above

        self.inside = 0
        quiet = ProbeSession._quiet
        setattr(ProbeSession, "_quiet", lambda session, act: self._clocked(quiet(session, act)))  # noqa: B010 - no method
        vramtui.probe.start()
        self.began = time.thread_time_ns() - begin
        (self._session,) = (thing for thing in gc.get_objects() if type(thing) is ProbeSession)
        self._tables: list[dict[Any, Any]] = [
            optimizer._global_optimizer_pre_hooks,
            optimizer._global_optimizer_post_hooks,
            module._global_forward_pre_hooks,
        ]
        self._off: list[dict[Any, Any]] = []
        self._backward: Any = torch.autograd.backward
        self._since = 0

    def _clocked(self, act: Any) -> Any:
        """`act`, with the CPU time that it takes added to `inside`."""

        def clocked(*arguments: Any) -> None:
            begin = time.thread_time_ns()
            act(*arguments)
            self.inside += time.thread_time_ns() - begin

        return clocked

    def begin_job(self) -> None:
        """A new job, of which the probe knows nothing: as a fork begins one."""
        self._session._begin_in_child()
        self.inside = 0

    def off(self) -> None:
        """From here on the job is as it would be without."""
        self._since = time.perf_counter_ns()
        self._off = [dict(table) for table in self._tables]
        for table in self._tables:
            table.clear()
        torch.autograd.backward = torch.autograd.backward.__wrapped__  # type: ignore[attr-defined]  # the probe's is one

    def on(self) -> None:
        """From here on it is watched."""
        for table, hooks in zip(self._tables, self._off, strict=True):
            table.update(hooks)
        torch.autograd.backward = self._backward
        away = time.perf_counter_ns() - self._since
        self._session._allowance._began += away
        self._session._last_beat += away / 1e9

    def end_job(self) -> None:
        """What it knows at the job's end is told."""
        self._session._beat()


def pairs(plan: Plan) -> list[dict[str, Any]]:
    """Whole jobs with and without: ns of CPU and wall time of each, of the probe's own calls, of its beginning."""
    training = Training(plan.layers)
    training.steps(WARM)
    switch = Switch()
    begin = time.monotonic()
    found: list[dict[str, Any]] = []
    while len(found) < plan.pairs and (not found or time.monotonic() - begin < plan.seconds):
        switch.begin_job()
        sums = {True: [0, 0], False: [0, 0]}
        for turn in range(2 * plan.steps // plan.block):
            # With, without, without, with: a machine that slows down steadily favours neither.
            probed = (turn + turn // 2 + len(found)) % 2 == 0
            cpu, wall = timed(training, plan.block, switch, probed=probed)
            sums[probed][0] += cpu
            sums[probed][1] += wall
        inside = switch.inside
        switch.end_job()
        found.append({"with": sums[True], "without": sums[False], "inside": inside, "began": switch.began})
    return found


def timed(training: Training, steps: int, switch: Switch, *, probed: bool) -> tuple[int, int]:
    """So many steps: ns of this thread's CPU time, ns on the clock."""
    if not probed:
        switch.off()
    wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
    training.steps(steps)
    cpu, wall = time.thread_time_ns() - cpu, time.perf_counter_ns() - wall
    if not probed:
        switch.on()
    return cpu, wall


def held(plan: Plan) -> int:
    """Bytes that the probe's files and all that they make hold at a job's end, as tracemalloc counts them."""
    training = Training(plan.layers)
    training.steps(WARM)
    tracemalloc.start(24)
    switch = Switch()
    training.steps(plan.steps)
    switch.end_job()
    return sum(trace.size for trace in tracemalloc.take_snapshot().traces if _ours(trace))


def _ours(trace: tracemalloc.Trace) -> bool:
    # The job's own backward passes run below a frame of hooks.py.
    marker = "/vramtui/probe/"
    files = [frame.filename for frame in trace.traceback if marker in frame.filename]
    return marker in trace.traceback[-1].filename or any(not name.endswith("/hooks.py") for name in files)


def main() -> None:
    """`pairs` or `held`, and the plan as JSON."""
    what, plan = sys.argv[1], Plan(**json.loads(sys.argv[2]))
    torch.set_num_threads(1)
    pretend()
    print(json.dumps(pairs(plan) if what == "pairs" else held(plan)), flush=True)


if __name__ == "__main__":
    main()
