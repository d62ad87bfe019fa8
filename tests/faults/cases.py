"""What goes wrong in the fault table; `seen.txt` has what a person then sees."""

from collections.abc import Callable

from tests.faults.host import CONTAINER, Fault
from tests.stub.nvidia_smi import card
from tests.stub.world import (
    DRIVER_NOT_LOADED,
    EVERY_CALL,
    FOR_EVER,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    INVALID_ARGUMENT,
    MEMORY_CALLS,
    MIB,
    MISMATCH,
    NO_PERMISSION,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    PROCESS_CALLS,
    RESET_REQUIRED,
    UNINITIALIZED,
    UNKNOWN,
    StubGpu,
    StubMig,
    StubProcess,
    World,
    fail,
)

GIB = 1 << 30
PID, OTHER = (1 << 22) - 3, (1 << 22) - 2  # that nobody has
Change = Callable[[StubGpu], None]


def host(change: Change | None = None, *processes: StubProcess, used: int | None = None) -> Callable[[], World]:
    """Two cards of 80 GiB; something about the first is changed."""

    def make() -> World:
        rows = list(processes) or [StubProcess(PID, 2 * GIB), StubProcess(OTHER, GIB)]
        held = sum(max(0, row.used) for row in rows) + 512 * MIB
        bad = StubGpu(name="NVIDIA A", total=80 * GIB, reserved=GIB, used=held if used is None else used)
        bad.processes = rows
        if change is not None:
            change(bad)
        return World([bad, StubGpu(name="NVIDIA B", total=80 * GIB, reserved=GIB, used=0)])

    return make


def hang(*functions: str) -> Change:
    return lambda gpu: gpu.hangs.update(dict.fromkeys(functions, FOR_EVER))


def put(**fields: object) -> Change:
    def change(gpu: StubGpu) -> None:
        for name, value in fields.items():
            setattr(gpu, name, value)

    return change


def to_first(change: Change) -> Callable[[World], None]:
    return lambda world: change(world.gpus[0])


def upgrade(world: World) -> None:
    world.init = MISMATCH
    for gpu in world.gpus:
        gpu.fail(UNINITIALIZED, EVERY_CALL)


def init(code: int) -> Callable[[], World]:
    return lambda: World([StubGpu()], init=code)


def migs(gpu: StubGpu) -> None:
    gpu.mig_mode = 1
    gpu.migs = [
        StubMig("3g.40gb", "MIG-a", 1, 0, total=40 * GIB, used=2 * GIB),
        StubMig("1g.10gb", "MIG-b", 7, 0, total=10 * GIB),
    ]


def in_instance(pid: int, used: int) -> StubProcess:
    return StubProcess(pid, used, gpu_instance=1, compute_instance=0)


def named(name: str) -> Callable[[], World]:
    return host(put(name=name))


def smi_card(**changed: str) -> dict[str, str]:
    return card(0, name="NVIDIA A", memory__total="81920", memory__used="1024", memory__free="80261", **changed)


SMI_LOST = "Unable to determine the device handle for GPU 0000:11:00.0: GPU is lost. "
SMI_LOST += "Reboot the system to recover this GPU"
GPU = card(0)["uuid"]
APPS = [f"{PID}, {GPU}, 900, python"]

FAULTS: tuple[Fault, ...] = (
    # --- the driver as a whole ---
    Fault("no driver at all"),
    Fault("the driver is not loaded", init(DRIVER_NOT_LOADED)),
    Fault("library and driver of different versions", init(MISMATCH)),
    Fault("no permission to talk to the driver", init(NO_PERMISSION)),
    Fault("the driver fails for no known reason", init(UNKNOWN)),
    Fault("the driver fails with a code that is new", init(77)),
    Fault("NVML fails and nvidia-smi answers", init(UNKNOWN), {"gpus": [smi_card()], "apps": APPS}),
    Fault("no card in the host", lambda: World([])),
    Fault("the driver is upgraded while running", host(), then=upgrade, where="dashboard"),
    Fault(
        "the driver is reloaded while running",
        host(),
        then=to_first(fail(UNINITIALIZED, EVERY_CALL)),
        where="dashboard",
    ),
    Fault("a driver too old for the newer calls", host(), variant="old"),
    # --- one card ---
    Fault("a card is lost", host(fail(GPU_IS_LOST, EVERY_CALL))),
    Fault("a card is lost while running", host(), then=to_first(fail(GPU_IS_LOST, EVERY_CALL)), where="dashboard"),
    Fault(
        "a card comes back",
        host(fail(GPU_IS_LOST, EVERY_CALL)),
        then=lambda w: w.gpus[0].faults.clear(),
        where="dashboard",
    ),
    Fault("a card needs a reset", host(fail(RESET_REQUIRED, EVERY_CALL))),
    Fault("a card whose handle is refused", host(fail(NO_PERMISSION, "nvmlDeviceGetHandleByIndex_v2"))),
    Fault("a call that never returns", host(), then=to_first(hang(MEMORY_CALLS[1])), where="dashboard"),
    Fault("a card that is silent from the start", host(hang("nvmlDeviceGetName")), where="dashboard"),
    Fault("a card without a name", host(fail(UNKNOWN, "nvmlDeviceGetName"))),
    # --- memory ---
    Fault("memory is not supported", host(fail(NOT_SUPPORTED, *MEMORY_CALLS))),
    Fault("memory that is the host's", host(put(total=0, used=0, reserved=0)), where="dashboard"),
    Fault("memory that nobody may read", host(fail(NO_PERMISSION, *MEMORY_CALLS))),
    Fault("memory that cannot be read now", host(fail(UNKNOWN, *MEMORY_CALLS))),
    Fault("only the older memory call", host(fail(FUNCTION_NOT_FOUND, MEMORY_CALLS[1]))),
    Fault("in use by nobody known", host(used=9 * GIB)),
    Fault("processes that say more than is in use", host(used=GIB)),
    # --- processes ---
    Fault("process list denied", host(fail(NO_PERMISSION, *PROCESS_CALLS))),
    Fault("process list denied, in the dashboard", host(fail(NO_PERMISSION, *PROCESS_CALLS)), where="dashboard"),
    Fault("process list not supported", host(fail(NOT_SUPPORTED, *PROCESS_CALLS))),
    Fault("process list fails with a wrong argument", host(fail(INVALID_ARGUMENT, *PROCESS_CALLS))),
    Fault("no graphics list", host(fail(NOT_SUPPORTED, *(c for c in PROCESS_CALLS if "Graphics" in c)))),
    Fault(
        "memory of a process is not available (WSL, vGPU)",
        host(None, StubProcess(PID, NOT_AVAILABLE), used=4 * GIB),
    ),
    Fault("the list grows faster than the buffer", host(None, *(StubProcess(PID - n, MIB) for n in range(40)))),
    Fault("records of another size (drivers 510 to 550)", host(put(records=16))),
    Fault("records that make no sense", host(put(records=20))),
    Fault("a process larger than its card", host(None, StubProcess(PID, 1 << 60), used=GIB)),
    Fault(
        "a process in both lists",
        host(None, StubProcess(PID, 2 * GIB), StubProcess(PID, 3 * GIB, "G"), used=3 * GIB),
    ),
    Fault("a process that has just exited", host(), then=lambda w: w.gpus[0].processes.clear(), where="dashboard"),
    Fault("a zombie's memory", host(None, StubProcess(PID, 6 * GIB), used=7 * GIB), where="dashboard"),
    Fault("a pid of another namespace", host(), namespace=CONTAINER),
    Fault("cut into instances (MIG)", host(migs, in_instance(PID, 2 * GIB))),
    Fault(
        "an MPS server with its clients",
        host(None, StubProcess(PID, 30 * MIB, "C"), StubProcess(OTHER, 2 * GIB, "C")),
    ),
    # --- names ---
    Fault("escape sequences in a card's name", named("\x1b[2J\x1b]0;pwn\x07card")),
    Fault("markup in a card's name", named("[red]card[/]"), where="dashboard"),
    # --- metrics ---
    Fault(
        "power and temperature not supported",
        host(put(power=None, power_limit=None, temperature=None, utilization=None)),
        where="dashboard",
    ),
    Fault("absurd figures", host(put(utilization=4000, temperature=999, power=4_000_000_000)), where="dashboard"),
    # --- nvidia-smi ---
    Fault(
        "nvidia-smi says that no driver is loaded",
        smi={"text": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "code": 9},
    ),
    Fault(
        "nvidia-smi says that versions differ",
        smi={"text": "Failed to initialize NVML: Driver/library version mismatch", "code": 18},
    ),
    Fault(
        "nvidia-smi says that a card is lost",
        smi={
            "gpus": [smi_card()],
            "before": SMI_LOST,
        },
    ),
    Fault("nvidia-smi ends with the code for a lost card", smi={"text": "GPU is lost", "code": 15}),
    Fault("nvidia-smi is killed", smi={"text": "", "code": 137}),
    Fault("nvidia-smi prints something else", smi={"text": "<html>proxy error</html>"}),
    Fault("nvidia-smi prints half a table", smi={"text": "0, GPU-5a51, 00000000:10"}),
    Fault("nvidia-smi hangs", smi={"sleep": 30, "gpus": []}),
    Fault(
        "nvidia-smi does not know some columns",
        smi={"gpus": [smi_card()], "apps": APPS, "rejected": ["memory.reserved", "compute_cap"]},
    ),
    Fault(
        "nvidia-smi has N/A for memory",
        smi={"gpus": [{**smi_card(), "memory.used": "[N/A]", "memory.free": "[N/A]"}], "apps": APPS},
    ),
    Fault("nvidia-smi has N/A for a process", smi={"gpus": [smi_card()], "apps": [f"{PID}, {GPU}, [N/A], python"]}),
    Fault(
        "nvidia-smi may not list processes",
        smi={"gpus": [smi_card()], "apps": ["Insufficient Permissions"], "apps_code": 4},
    ),
    Fault(
        "nvidia-smi prints numbers the German way",
        smi={"gpus": [{**smi_card(), "power.draw": "123,45"}], "apps": APPS},
    ),
    Fault(
        "nvidia-smi names with escape sequences",
        smi={"gpus": [smi_card()], "apps": [f"{PID}, {GPU}, 900, \x1b[2Jpython"]},
    ),
    Fault("nvidia-smi finds no devices", smi={"text": "No devices were found", "code": 6}),
)
