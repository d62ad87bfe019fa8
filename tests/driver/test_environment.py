"""What a process finds on a card that is not there, through the runtime library's names and NVML's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.driver.libraries import libraries
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import CARDS
from vramtui.dryrun.cuda.build import DRIVER
from vramtui.dryrun.cuda.environment import EmulatedCard, emulating, lay_out, read_reports

CARD = CARDS["RTX4090"]
EMULATED = EmulatedCard(device=CARD, multiprocessors=128, context=460 * MIB, devices=2)
JOB = """
import ctypes, json, os
cuda = ctypes.CDLL(None)
count, device, address = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
said = {"count": (cuda.cudaGetDeviceCount(ctypes.byref(count)), count.value)}
cuda.cudaSetDevice(1)
said["taken"] = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 30))
said["refused"] = cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 40))
said["last"] = [cuda.cudaGetLastError(), cuda.cudaGetLastError()]
cuda.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total))
said["free"], said["total"] = free.value, total.value
import pynvml
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(1)
said["name"] = pynvml.nvmlDeviceGetName(handle)
said["used"] = pynvml.nvmlDeviceGetMemoryInfo(handle).used
said["sensors"] = [getattr(pynvml, f"nvmlDeviceGet{one}")(handle) for one in ("TotalEnergyConsumption", "PowerUsage")]
processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
said["processes"] = [[process.pid == os.getpid(), process.usedGpuMemory] for process in processes]
said["peers"] = [pynvml.nvmlDeviceGetP2PStatus(handle, pynvml.nvmlDeviceGetHandleByIndex(0), how) for how in (0, 2)]
said["peers"] += [cuda.cudaDeviceEnablePeerAccess(0, 0)]
said["devices"] = sorted(os.environ.get(name, "") for name in ("CUDA_VISIBLE_DEVICES",))
said["open"] = [link for link in map(os.path.realpath, __import__("glob").glob("/proc/self/fd/*")) if "nvidia" in link]
print(json.dumps(said))
"""


@pytest.mark.parametrize("name", ["GeForce RTX 3090", "RTX4090", "RTX6000Ada", "GTX1080"])
def test_a_process_finds_the_cards_and_no_other(tmp_path: Path, name: str) -> None:
    emulated = msgspec.structs.replace(EMULATED, device=msgspec.structs.replace(CARD, name=name))
    base = os.environ | {"CUDA_VISIBLE_DEVICES": "7"}
    environment = emulating(base, emulated, libraries(), tmp_path)
    ran = subprocess.run([sys.executable, "-c", JOB], env=environment, capture_output=True, text=True, check=True)
    said = json.loads(ran.stdout)
    assert said["count"] == [0, 2]
    assert (said["taken"], said["refused"], said["last"]) == (0, 2, [2, 0])
    beginning = EMULATED.context * 518 // 740  # no kernel was launched, no library has a handle
    held = GIB + beginning
    assert (said["free"], said["total"]) == (CARD.total_memory - held, CARD.total_memory)
    assert (said["name"], said["used"]) == (f"NVIDIA {name}", held)
    assert said["processes"] == [[True, held]]
    assert said["peers"] == ([0, 5, 0] if name in {"RTX6000Ada", "GTX1080"} else [5, 5, 217])  # PCIe, without NVLink
    assert (said["devices"], said["open"], said["sensors"]) == ([""], [], [0, 0])
    (report,) = read_reports(tmp_path)
    assert (report.peaks[:2], report.contexts[:2]) == ((0, held), (0, beginning))
    assert report.unmodelled == ()


def test_the_own_environment_is_left_alone(tmp_path: Path) -> None:
    before = {"LD_LIBRARY_PATH": "/opt/lib", "LANG": "C"}
    environment = emulating(before, EMULATED, tmp_path, tmp_path)
    assert before == {"LD_LIBRARY_PATH": "/opt/lib", "LANG": "C"}
    assert environment["LD_LIBRARY_PATH"] == f"{tmp_path}:/opt/lib"
    assert environment["LANG"] == "C"


def test_linkers_and_scripts_find_what_nvidias_driver_brings(tmp_path: Path) -> None:
    """`-lcuda` of the job's own compiler, and `nvidia-smi`."""
    environment = emulating(os.environ, EMULATED, libraries(), tmp_path)
    lay_out(tmp_path, libraries())
    source, program = tmp_path / "main.c", tmp_path / "main"
    source.write_text("int cuInit(unsigned); int main(void) { return cuInit(0); }", encoding="utf-8")
    subprocess.run([os.environ.get("CC", "cc"), source, "-o", program, "-lcuda"], env=environment, check=True)
    subprocess.run([program], env=environment, check=True)
    assert (Path(environment["TRITON_LIBCUDA_PATH"]) / DRIVER).exists()


TOTAL = CARD.total_memory // MIB


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["--query-gpu=memory.total", "--format=csv,noheader,nounits"], [f"{TOTAL}", f"{TOTAL}"]),
        (
            ["--query-gpu", "index, gpu_name,memory.used,fan.speed", "--format=csv", "-i", "1"],
            ["index, gpu_name, memory.used [MiB], fan.speed", "1, NVIDIA RTX4090, 0 MiB, [N/A]"],
        ),
        (["--query-gpu=compute_cap,count", "--format=csv,noheader", "--id=0"], ["8.9, 2"]),
        (["--query-compute-apps=pid,used_memory", "--format=csv"], ["pid, used_memory [MiB]"]),
    ],
)
def test_nvidia_smi_tells_of_the_card(tmp_path: Path, words: list[str], lines: list[str]) -> None:
    environment = emulating(os.environ, EMULATED, libraries(), tmp_path)
    lay_out(tmp_path, libraries())
    (tmp_path / "vramtui").mkdir()  # the job's own, in whose folder it is
    (tmp_path / "vramtui" / "__init__.py").touch()
    command = ["nvidia-smi", *words]
    ran = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == lines


def test_nvidia_smi_lists_cards_and_the_processes_on_them(tmp_path: Path) -> None:
    environment = emulating(os.environ, EMULATED, libraries(), tmp_path)
    lay_out(tmp_path, libraries())
    apps = "nvidia-smi --query-compute-apps=pid,used_gpu_memory --format=csv,noheader"
    job = "import ctypes as c, os; c.CDLL(None).cudaMalloc(c.byref(c.c_uint64()), c.c_size_t(1 << 30))"
    job += f"; print(os.getpid(), flush=True); os.system({f'{apps}; nvidia-smi -L; nvidia-smi'!r})"
    ran = subprocess.run([sys.executable, "-c", job], env=environment, capture_output=True, text=True, check=True)
    pid, process, first, second, *summary = ran.stdout.splitlines()
    assert process.startswith(f"{pid}, 13")
    assert process.endswith(" MiB")
    assert first.startswith("GPU 0: NVIDIA RTX4090 (UUID: GPU-")
    assert second.startswith("GPU 1: NVIDIA RTX4090 (UUID: GPU-")
    assert f"MiB /   {TOTAL}MiB" in summary[-1]


def test_a_file_that_is_no_report_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1.report").write_bytes(b"short")
    (tmp_path / "2.report").write_bytes(bytes(70000))
    assert read_reports(tmp_path) == ()


def test_what_a_job_left_in_the_place_of_reports_is_no_report(tmp_path: Path) -> None:
    """It may write there: what waits, what has no end and what is larger than any report."""
    os.mkfifo(tmp_path / "1.report")
    (tmp_path / "2.report").mkdir()
    (tmp_path / "3.report").symlink_to("/dev/zero")
    (tmp_path / "4.report").touch()
    os.truncate(tmp_path / "4.report", 1 << 40)
    assert read_reports(tmp_path) == ()


OPENED = """
import ctypes, os
number = ctypes.c_int()
library = ctypes.CDLL(os.environ["VLLM_NCCL_SO_PATH"])
print(library.ncclGetVersion(ctypes.byref(number)), number.value, library.ncclGroupStart(), library.ncclGroupEnd())
"""


def test_a_server_that_opens_nccl_by_its_file_finds_the_emulated_one(tmp_path: Path) -> None:
    environment = emulating(os.environ, EMULATED, libraries(), tmp_path)
    ran = subprocess.run([sys.executable, "-c", OPENED], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0", "22900", "0", "0"]
