"""A moment with something of everything: the snapshot that the exporters' tests write out."""

from vramtui.core.estimate.estimate import Category, Estimate, Ledger, Part, ledger_from_parts
from vramtui.core.estimate.fits import compare
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Problem, Process, Sample, process_key
from vramtui.core.observation.snapshot import Holding, Snapshot, observed_ledger

HOSTILE = "[red]x[/] \x1b[2J\x1b]0;pwn\x07"
TAKEN_AT = 1_769_861_109.25
GIB, MIB = 1 << 30, 1 << 20
HOST = "gpu01.example"

TRAINING = Process(
    pid=4213,
    type="C",
    used_memory=58 * GIB + 4096,
    user="anna",
    name="python",
    command="python train.py --lr=1e-4 --model llama",
    started_at=TAKEN_AT - 600,
    cpu_percent=98.5,
    host_memory=3 * GIB,
    state="running",
)
PIPES = f"{HOSTILE} | `id` <script>alert(1)</script> \\"
FORMULA = "=cmd|' /C calc'!A0"
OTHERS = (
    Process(pid=5120, type="C", user="bo", name="x", command=PIPES, used_memory=2 * GIB, state="running"),
    Process(pid=5121, type="G", user=FORMULA, name="@SUM(A1)", used_memory=GIB, state="running"),
    Process(pid=5122, type="C", name=HOSTILE, used_memory=MIB, cpu_percent=float("nan"), state="zombie"),
    Process(pid=5123, type="C+G", absent={"used_memory": Absence.NO_PERMISSION}, state="unseen"),
)

BUSY = Gpu(
    index=0,
    uuid="GPU-0",
    name="NVIDIA H200 NVL",
    memory=Memory(total=143771 * MIB, used=62 * GIB, reserved=615 * MIB, free=143156 * MIB - 62 * GIB),
    processes=(TRAINING, *OTHERS),
    compute_capability=(9, 0),
    utilization=59,
    power_watts=412.4,
    power_limit_watts=600.0,
    temperature_celsius=61,
    throttle_reasons=("power cap",),
    absent={"fan_percent": Absence.NOT_SUPPORTED},
)
CUT = Gpu(
    index=1,
    uuid="GPU-1",
    name="NVIDIA A100",
    memory=Memory(total=40 * GIB, used=9 * GIB, reserved=GIB, free=30 * GIB - 512),
    mig_used=8 * GIB,
)
PROMPT = Gpu(index=2, uuid="GPU-2", name="Tesla V100", memory=Memory(total=16 * GIB, used=GIB, free=15 * GIB))
LOST = Gpu(index=3, uuid="GPU-3", name="NVIDIA T4", state="lost", reason="the GPU fell off the bus <b>now</b>")


def _estimate() -> Estimate:
    bytes_of: dict[Category, int] = {"weights": 16 * GIB, "gradients": 84 * MIB, "activations": 44 * GIB}
    parts = tuple(
        Part(
            name=line,
            line=line,
            bytes=held,
            at_peak=held,
            formula=f"{line} = n × 2",
            source="PyTorch",
            lifetime="from build on",
        )
        for line, held in bytes_of.items()
    )
    return Estimate(
        method="analytic",
        parts=parts,
        ledger=ledger_from_parts(bytes_of, reserved=61 * GIB, context=500 * MIB),
        peak_phase="backward",
        assumptions=("allocator settings are PyTorch's defaults", "hidden_size * 2 [GiB] <fits>"),
    )


def moment(host: str = HOST) -> Snapshot:
    sample = Sample(
        taken_at=TAKEN_AT,
        source="nvml",
        host=Host(
            name=host,
            driver_version="580.95.05",
            cuda_version="13.0",
            cpu_percent=23.0,
            memory_total=512 * GIB,
            memory_available=500 * GIB,
        ),
        gpus=(BUSY, CUT, PROMPT, LOST),
        problems=(Problem(where="GPU 3", message=f"lost {HOSTILE}", hint="Reset the machine."),),
    )
    estimate = _estimate()
    peak = Peak(bytes=60 * GIB, at=TAKEN_AT - 30)
    observed = observed_ledger(peak.bytes)
    seen = Ledger(process=observed.process, allocated=59 * GIB)
    holdings = tuple(
        Holding(
            key=process_key(host, BUSY, process),
            gpu_index=0,
            process=process,
            peak=Peak(bytes=process.used_memory, at=TAKEN_AT) if process.used_memory else None,
        )
        for process in OTHERS
    )
    trained = Holding(
        key=process_key(host, BUSY, TRAINING),
        gpu_index=0,
        process=TRAINING,
        peak=peak,
        preset="llama-3.1-8b-lora",
        estimate=estimate,
        comparison=compare("llama-3.1-8b-lora", estimate, seen, TRAINING.used_memory),
        times=(TAKEN_AT - 120, TAKEN_AT - 60, TAKEN_AT),
        values=(16 * GIB, 60 * GIB, 58 * GIB),
    )
    versions = {"vramtui": "0.1.0", "driver": "580.95.05"}
    return Snapshot(sample=sample, holdings=(trained, *holdings), versions=versions)
