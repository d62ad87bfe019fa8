"""The jobs of the demo's host: who runs what, and how much memory it holds at each second of its life."""

import msgspec

from vramtui.core.base.units import GIB, MIB


class DemoStage(msgspec.Struct, frozen=True):
    """A stretch of a job's life: `seconds` long, its memory going from where it was to `end` bytes.

    A `ramp` grows evenly, as weights do while they load; otherwise the whole of it is taken at the beginning, as
    the caching allocator takes its segments.
    """

    name: str
    seconds: float
    end: int
    ramp: bool = False


class DemoJob(msgspec.Struct, frozen=True, kw_only=True):
    """One command on one GPU; with `pause` it starts again, as a new process, that many seconds after its end.

    Attributes:
        age: seconds it has been running when the demo begins.
        busy: GPU utilisation in per cent.
        cpu: host CPU in per cent of a core.
        container: what it runs in.
        above: pid and command of the script that started it, where one did.
    """

    gpu: int
    pid: int
    user: str
    name: str
    command: str
    stages: tuple[DemoStage, ...]
    age: float
    busy: int
    cpu: float
    host_memory: int
    pause: float | None = None
    container: str | None = None
    above: tuple[int, str] | None = None

    @property
    def length(self) -> float:
        """Seconds from start to end of one run."""
        return sum(stage.seconds for stage in self.stages)

    def run(self, elapsed: float) -> int:
        """How many times it has started again."""
        return 0 if self.pause is None else int((elapsed + self.age) // (self.length + self.pause))

    def started(self, elapsed: float) -> float:
        """When this run began, in seconds after the demo's start (negative: before it)."""
        period = 0.0 if self.pause is None else self.length + self.pause
        return self.run(elapsed) * period - self.age

    def memory(self, elapsed: float) -> int | None:
        """Bytes held, or None while it does not run."""
        into = elapsed - self.started(elapsed)
        held = CONTEXT
        for stage in self.stages:
            if into < stage.seconds:
                return held + int((stage.end - held) * into / stage.seconds) // MIB * MIB if stage.ramp else stage.end
            into -= stage.seconds
            held = stage.end
        return held if self.pause is None else None


CONTEXT = 524 * MIB
EXPERIMENT = (4102, "bash experiment.sh --train --evaluate")


def _steps(peak: int, idle: int, count: int) -> tuple[DemoStage, ...]:
    """Training steps whose evaluations between epochs give the cache back to the driver."""
    return tuple(
        stage for _ in range(count) for stage in (DemoStage("train", 300, peak), DemoStage("evaluate", 25, idle))
    )


TRAINING = DemoJob(
    gpu=0,
    pid=4213,
    user="anna",
    name="python",
    command="python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4 --seq 2048 --bf16 --lora-r 16",
    stages=(
        DemoStage("import", 6, CONTEXT),
        DemoStage("load weights", 30, CONTEXT + 15322 * MIB, ramp=True),
        DemoStage("first forward", 3, 64 * GIB),
        DemoStage("first backward", 4, 72 * GIB),
        *_steps(75 * GIB + 614 * MIB, 31 * GIB, 12),
    ),
    age=400,
    busy=97,
    cpu=104.0,
    host_memory=21 * GIB,
    pause=20,
    container="slurm 4127",
    above=EXPERIMENT,
)
SERVER = DemoJob(
    gpu=1,
    pid=5120,
    user="bo",
    name="python",
    command="python serve.py --model Qwen/Qwen2.5-7B-Instruct --max-batch 8",
    stages=(
        DemoStage("load", 40, CONTEXT + 14600 * MIB, ramp=True),
        DemoStage("serve", 86400, 20 * GIB + 938 * MIB),
    ),
    age=7260,
    busy=41,
    cpu=163.0,
    host_memory=9 * GIB,
    container="docker 9b1c0f2e4d7a",
)
SMALL = DemoJob(
    gpu=2,
    pid=6001,
    user="carla",
    name="python",
    command="python train_gpt2.py --size 124M",
    stages=(
        DemoStage("import", 5, CONTEXT),
        DemoStage("first step", 3, 17 * GIB),
        DemoStage("train", 600, 18 * GIB + 160 * MIB),
    ),
    age=130,
    busy=88,
    cpu=99.0,
    host_memory=4 * GIB,
    pause=45,
)
NOTEBOOK = DemoJob(
    gpu=2,
    pid=3177,
    user="dora",
    name="python3",
    command="/opt/conda/bin/python3 -m ipykernel_launcher -f kernel-7d1c.json",
    stages=(DemoStage("idle", 1e9, 3 * GIB + 92 * MIB),),
    age=95000,
    busy=2,
    cpu=0.3,
    host_memory=2 * GIB,
)
EVALUATION = DemoJob(
    gpu=3,
    pid=7044,
    user="anna",
    name="python",
    command="python eval.py --checkpoint runs/0412/step_8000.pt",
    stages=(
        DemoStage("load", 20, CONTEXT + 15316 * MIB, ramp=True),
        DemoStage("evaluate", 160, 22 * GIB + 704 * MIB),
    ),
    age=75,
    busy=63,
    cpu=100.0,
    host_memory=17 * GIB,
    pause=60,
    container="slurm 4127",
    above=EXPERIMENT,
)
JOBS = (TRAINING, SERVER, SMALL, NOTEBOOK, EVALUATION)
