import msgspec

from vramtui.core.base.units import GIB, MIB
from vramtui.core.observation.readings import EMULATED, Absence, Gpu, Host, Memory, Problem, Process, Sample

START = 1_800_000_000.0
HOST = Host(name="gpu01", driver_version="580.95.05", cuda_version="13.0")
HOSTILE = "[red]x[/] \x1b[2J\x1b]0;pwn\x07"


UNIFIED = Memory(used=20 * GIB, free=90 * GIB, unified=True)


def process(pid: int, used: int | None, line: str, **more: object) -> Process:
    fields: dict[str, object] = {
        "type": "C",
        "used_memory": used,
        "user": "anna",
        "name": line.split(maxsplit=1)[0],
        "command": line,
        "started_at": START - 600,
        "state": "running",
    }
    return Process(pid=pid, **(fields | more))  # type: ignore[arg-type]  # fields of any type, checked by msgspec


def gpu(index: int, *processes: Process, unattributed: int = 0, **more: object) -> Gpu:
    used = sum(entry.used_memory or 0 for entry in processes) + unattributed
    total, reserved = 80 * GIB, 600 * MIB
    fields: dict[str, object] = {
        "name": "NVIDIA A100-SXM4-80GB",
        "memory": Memory(total=total, used=used, reserved=reserved, free=total - reserved - used),
        "processes": processes,
        "compute_capability": (8, 0),
        "utilization": 90 if processes else 0,
        "power_watts": 310.0 if processes else 61.0,
        "power_limit_watts": 400.0,
        "temperature_celsius": 64 if processes else 31,
    }
    return Gpu(index=index, uuid=f"GPU-{index}", **(fields | more))  # type: ignore[arg-type]  # as above


def sample(*gpus: Gpu, at: float = 0.0, problems: tuple[Problem, ...] = ()) -> Sample:
    return Sample(taken_at=START + at, source="given", host=HOST, gpus=gpus, problems=problems)


TRAIN = "python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4 --seq 4096 --bf16 --lora-r 16"


def usual(at: float = 0.0, trained: int = 58 * GIB) -> Sample:
    return sample(
        gpu(0, process(4213, trained, TRAIN), process(977, 1 * GIB, "jupyter lab", user="dora")),
        gpu(1, process(5120, 20 * GIB, "vllm serve Qwen/Qwen2.5-7B-Instruct", user="bo"), unattributed=3 * GIB),
        at=at,
    )


def troubled(at: float = 0.0) -> Sample:
    unknown = dict.fromkeys(("power_watts", "utilization", "temperature_celsius"), Absence.NOT_SUPPORTED)
    return sample(
        gpu(
            0,
            state="lost",
            reason="fell off the bus (NVML: GPU is lost)",
            memory=Memory(),
            processes=(),
            utilization=None,
            power_watts=None,
            power_limit_watts=None,
            temperature_celsius=None,
        ),
        gpu(
            1,
            memory=Memory(),
            utilization=None,
            power_watts=None,
            temperature_celsius=None,
            absent={"memory": Absence.NOT_SUPPORTED, "processes": Absence.NO_PERMISSION} | unknown,
        ),
        gpu(
            2,
            process(300, None, "python hidden.py", absent={"used_memory": Absence.NOT_SUPPORTED}),
            process(301, 9 * GIB, HOSTILE, user="mallory[b]"),
            process(302, 7 * GIB, "python gone.py", state="exited"),
            process(303, 5 * GIB, "python", name=None, command=None, user=None, state="unseen"),
            unattributed=12 * GIB,
            processes_trusted=False,
        ),
        gpu(3, process(400, 30 * GIB, "python fine.py")),
        at=at,
        problems=(Problem(where="nvmlDeviceGetFanSpeed", message="not supported", hint="nothing to do"),),
    )


def first_screen(name: str) -> Sample:
    full = [gpu(index, process(4000 + index, (70 - 6 * index) * GIB, TRAIN)) for index in range(8)]
    clients = [process(91 + at, size * GIB, TRAIN, type="M+C") for at, size in enumerate((8, 12))]
    shared = [gpu(0, process(90, 30 * MIB, "nvidia-cuda-mps-server"), *clients)]
    unified = [gpu(0, process(51, 20 * GIB, TRAIN), name="NVIDIA GB10", memory=UNIFIED)]
    long = [gpu(0, process(4000, 70 * GIB, TRAIN), name="NVIDIA RTX PRO 6000 Blackwell Server Edition")]
    kinds = {"one": full[:1], "four": full[:4], "eight": full, "mps": shared, "unified": unified, "simulated": long}
    shown = divided() if name == "mig" else sample(*kinds[name])
    return msgspec.structs.replace(shown, source=EMULATED) if name == "simulated" else shown


def divided(at: float = 0.0) -> Sample:
    part = Memory(total=10 * GIB, used=4 * GIB, reserved=64 * MIB, free=6 * GIB - 64 * MIB)
    return sample(
        gpu(0, memory=Memory(total=80 * GIB, used=4 * GIB, reserved=600 * MIB, free=75 * GIB), mig_used=4 * GIB),
        Gpu(
            index=0,
            uuid="MIG-0-1",
            name="NVIDIA A100-SXM4-80GB",
            memory=part,
            processes=(process(50, 4 * GIB, "python small.py"),),
            mig_parent="GPU-0",
            mig_profile="1g.10gb",
        ),
        gpu(1, name="NVIDIA GB10", memory=UNIFIED),
        at=at,
    )


def cut_alike() -> Sample:
    part = Memory(total=20 * GIB, used=4 * GIB, reserved=64 * MIB, free=16 * GIB - 64 * MIB)
    parts = [
        Gpu(
            index=0,
            uuid=f"MIG-0-{place}",
            name="NVIDIA H100",
            memory=part,
            processes=(process(50 + place, 4 * GIB, "python small.py"),),
            mig_parent="GPU-0",
            mig_profile=profile,
        )
        for place, profile in enumerate(("2g.20gb", "3g.40gb", "2g.20gb"))
    ]
    whole = Memory(total=80 * GIB, used=12 * GIB, reserved=600 * MIB, free=67 * GIB)
    return sample(gpu(0, memory=whole, mig_used=12 * GIB), *parts)
