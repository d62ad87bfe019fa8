import os
from pathlib import Path

from tests.stub.build import build
from tests.stub.world import MIB, StubGpu, StubProcess, World

GIB = 1024 * MIB
HOSTILE = "[red]x[/] \x1b[2J\x1b]0;pwn\x07"
HARMLESS = "[red]x[/] ␛[2J␛]0;pwn␇"
COMMANDS = (("python", "train_llama.py", "--lr=1e-4"), ("serve-vllm", "--port", "8000"), (HOSTILE, "hostile-argument"))


class StandIn:
    """A driver that shows two cards with three processes; `environment` makes a program ask it.

    Args:
        folder: where the world is described, and where the program keeps its own files.
        pids: of three processes that run COMMANDS.
    """

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.pids = pids
        self._state = folder / "world"
        self.environment: dict[str, str | None] = {
            "LD_LIBRARY_PATH": str(build()),
            "VRAMTUI_STUB_STATE": str(self._state),
            "VRAMTUI_CONFIG_DIR": str(folder / "config"),
            "VRAMTUI_DATA_DIR": str(folder / "data"),
            "NO_COLOR": None,
            # No nvidia-smi of this machine's.
            "PATH": "",
        }
        self.busy = StubGpu(name="NVIDIA H200 NVL", used=40 * GIB, utilization=59)
        self.busy.processes = [StubProcess(pids[0], 33 * GIB), StubProcess(pids[2], 2 * GIB)]
        self.other = StubGpu(name="NVIDIA L40S", total=46068 * MIB, used=10 * GIB, utilization=7)
        self.other.processes = [StubProcess(pids[1], 9 * GIB)]
        self.world = World(gpus=[self.busy, self.other])
        self.show()

    def show(self) -> None:
        self.world.write(self._state)

    def whole_environment(self, **more: str) -> dict[str, str]:
        env = {**os.environ, **self.environment, **more}
        return {name: value for name, value in env.items() if value is not None}
