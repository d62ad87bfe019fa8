"""A training job whose torch says that it has a GPU, and whose allocator's counters follow a plan.

Arguments: `fits`, or `oom` to die in the backward pass of the second step, or `caught` to live on after it, under a
limit that it set itself.
"""

import contextlib
import sys
import types
from collections.abc import Callable
from typing import Any

import no_compiler  # type: ignore[import-not-found]  # noqa: F401 - beside this file, for its effect
import torch

MIB = 1 << 20


class FakeCuda:
    def __init__(self) -> None:
        self.now = {"allocated_bytes": 0, "reserved_bytes": 0}
        self.peak = dict(self.now)
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.ooms = 0
        self.allowed = 24 << 30

    def hold(self, allocated: int, reserved: int) -> None:
        self.now = {"allocated_bytes": allocated * MIB, "reserved_bytes": reserved * MIB}
        self.peak = {name: max(size, self.peak[name]) for name, size in self.now.items()}

    def stats(self, device: int) -> dict[str, Any]:
        zero = {"all": {"current": 0, "peak": 0}}
        if device:
            return dict.fromkeys(self.now, zero)
        figures: dict[str, Any] = {
            name: {"all": {"current": self.now[name], "peak": self.peak[name]}} for name in self.now
        }
        return {**figures, "num_alloc_retries": self.ooms, "num_ooms": self.ooms}

    def fail(self, asked: int, free: int) -> None:
        """Run out of memory as the allocator does: it tells its observers, then raises."""
        self.ooms += 1
        for observe in self.observers:
            observe(0, asked * MIB, self.allowed, free * MIB)
        raise torch.cuda.OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {asked}.00 MiB. GPU 0 has a total capacity of 24.00 GiB of which "
            f"{free}.00 MiB is free. Of the allocated memory 1.00 GiB is allocated by PyTorch, and 300.00 MiB is "
            "reserved by PyTorch but unallocated."
        )


def properties(device: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        name="Fake RTX", total_memory=24 << 30, major=8, minor=9, uuid=f"00000000-0000-0000-0000-00000000000{device}"
    )


def install() -> FakeCuda:
    fake = FakeCuda()
    cuda: Any = torch.cuda
    cuda.is_initialized = lambda: True
    cuda.device_count = lambda: 2
    cuda.get_device_properties = properties
    cuda.mem_get_info = lambda _device: (512 * MIB, 24 << 30)
    cuda.memory_stats_as_nested_dict = fake.stats
    internals: Any = torch._C
    internals._cuda_attach_out_of_memory_observer = fake.observers.append
    return fake


def step(fake: FakeCuda, number: int, how: str) -> None:
    """One step: it holds 100 MiB of weights, 200 more from the first step on, and peaks at 900 in its backward pass."""
    states = 200 if number else 0
    loss = MODEL(torch.randn(2, 8)).sum()
    fake.hold(600 + states, 700 + states)
    fake.hold(500 + states, 700 + states)
    if how != "fits" and number == 1:
        loss.register_hook(lambda _: fake.fail(2048, 512))
    loss.register_hook(lambda _: fake.hold(900 + states, 1000 + states))
    loss.backward()
    fake.hold(200 + states, 1000 + states)
    OPTIMIZER.step()
    fake.hold(400, 1000 + states)
    OPTIMIZER.zero_grad()
    fake.hold(300, 1000 + states)


if __name__ == "__main__":
    CUDA = install()
    CUDA.hold(100, 120)
    if sys.argv[1] == "caught":
        CUDA.allowed = 1 << 30
    MODEL = torch.nn.Linear(8, 8)
    OPTIMIZER = torch.optim.AdamW(MODEL.parameters())
    for count in range(4):
        with contextlib.suppress(*([torch.cuda.OutOfMemoryError] if sys.argv[1] == "caught" else [])):
            step(CUDA, count, sys.argv[1])
