"""Several processes on the same GPUs: what they hold together, who has ended, and which GPUs each of them sees."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.driver.libraries import libraries
from vramtui.core.base.units import GIB, MIB
from vramtui.core.estimate.devices import Device
from vramtui.dryrun.cuda.environment import DriverReport, EmulatedCard, emulating, read_reports

CARD = EmulatedCard(
    device=Device(name="NVIDIA Test", capability=(8, 0), total_memory=24 * GIB),
    multiprocessors=108,
    context=740 * MIB,
    devices=3,
)
BEGINNING = 518 * MIB  # of a context
CALLS = """
import ctypes, multiprocessing, os, subprocess, sys, threading, time
cuda, address, size, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_int()
def malloc(bytes):
    return cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(int(bytes)))
def other(gib):  # the code of a process that ends with what cudaMalloc said
    allocate = f"cudaMalloc(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t({gib} << 30))"
    return f"import ctypes, sys; sys.exit(ctypes.CDLL(None).{allocate})"
def unused():
    cuda.cudaMemGetInfo(ctypes.byref(size), ctypes.byref(ctypes.c_size_t()))
    return size.value
"""


def run(tmp_path: Path, code: str, **variables: str) -> tuple[DriverReport, ...]:
    environment = emulating(os.environ, CARD, libraries(), tmp_path) | variables
    ran = subprocess.run(
        [sys.executable, "-c", CALLS + code], env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return read_reports(tmp_path)


def test_the_sum_of_all_processes_is_what_a_gpu_holds(tmp_path: Path) -> None:
    reports = run(
        tmp_path,
        """
assert malloc(11 << 30) == 0
results = [os.fork() or os._exit(malloc(1)) for _ in range(1)]  # CUDA is not initialized in a child of one that uses it
assert os.waitstatus_to_exitcode(os.waitpid(results[0], 0)[1]) == 3
for gib, result in ((11, 0), (13, 2)):
    assert subprocess.call([sys.executable, "-c", other(gib)]) == result, gib
""",
    )
    assert sorted(max(report.totals) for report in reports) == [
        11 * GIB + BEGINNING,
        11 * GIB + 2 * BEGINNING,  # and its context, of the one that was refused more
        22 * GIB + 2 * BEGINNING,
    ]
    assert sorted(max(report.refused) for report in reports) == [0, 0, 13 * GIB]


def test_many_processes_are_all_counted(tmp_path: Path) -> None:
    """More than 64 and than 256 files of reports: here children that never used CUDA before they were forked."""
    run(
        tmp_path,
        """
import pynvml
ends, starts = os.pipe(), os.pipe()
for _ in range(300):
    if os.fork() == 0:
        assert malloc(2 << 20) in (0, 2)
        os.write(ends[1], b".")
        os.read(starts[0], 1)
        os._exit(0)
for _ in range(300):
    os.read(ends[0], 1)
pynvml.nvmlInit()
handle = pynvml.nvmlDeviceGetHandleByIndex(0)
listed = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
fit = (24 << 30) // (520 << 20)
assert 40 < len(listed) <= fit + 1, len(listed)
assert 23 << 30 < pynvml.nvmlDeviceGetMemoryInfo(handle).used <= 24 << 30
os.write(starts[1], b"." * 300)
""",
    )


def test_who_has_ended_holds_nothing(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
before = unused()
first = subprocess.Popen([sys.executable, "-c", other(14)])
os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)  # and is not waited for
assert unused() == before, (unused(), before)
second = subprocess.Popen([sys.executable, "-c", other(14)])
assert first.wait() == second.wait() == 0
name = next(name for name in os.listdir(os.environ["VRAMTUI_DRIVER_REPORT"]) if name.startswith(f"{first.pid}-"))
folder = os.environ["VRAMTUI_DRIVER_REPORT"]
with open(f"{folder}/{name}", "rb") as file:
    report = bytearray(file.read())
report[4:8], report[32:40] = os.getppid().to_bytes(4, "little"), (9 << 30).to_bytes(8, "little")
with open(f"{folder}/{os.getppid()}-1.report", "wb") as file:  # a living process that began at another time
    file.write(report)
assert unused() == before, (unused(), before)
""",
    )


def test_a_program_that_becomes_another_keeps_its_peak(tmp_path: Path) -> None:
    (report,) = run(
        tmp_path,
        """
assert malloc(11 << 30) == 0
os.execv(sys.executable, [sys.executable, "-c", other(20)])
""",
    )
    assert report.peaks[0] == 20 * GIB + BEGINNING


def test_a_fork_among_threads_neither_waits_nor_allocates(tmp_path: Path) -> None:
    run(
        tmp_path,
        """
assert malloc(1 << 20) == 0
def work():
    own = ctypes.c_uint64()
    while not over:
        assert cuda.cudaMalloc(ctypes.byref(own), ctypes.c_size_t(1 << 20)) == 0
        assert cuda.cudaFree(own) == 0
over = []
threads = [threading.Thread(target=work) for _ in range(6)]
for thread in threads:
    thread.start()
for _ in range(20):
    child = os.fork()
    if child == 0:
        os._exit(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
over.append(1)
for thread in threads:
    thread.join()
""",
    )


UUID = "GPU-7672616d-7475-692d-6361-72642d00000"


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        ("0,1,2", [0, 1, 2]), ("2,0", [2, 0]), ("1", [1]), ("", []), ("-1", []), ("0,-1,1", [0]), ("7", []),
        ("0,7,1", [0]), ("0,0", []), ("0,1,0", []), ("7,0,0", []), ("abc", []), ("NoDevFiles", []), ("MIG-x", []),
        (",", []), ("0,,1", [0]), ("1gpu2,2ampere", [1, 2]), (" 1 , 2 ", [1, 2]), ("0x1", [0]), ("+1", [1]),
        (f"{UUID}2", [2]), (f"{UUID}2,{UUID}0", [2, 0]), (f"{UUID}2,{UUID}2", []), ("GPU-7672616d", []), ("GPU-x", []),
        (f"{UUID}1,0", [1]), (f"0,{UUID}1", [0]), ("1,2,9999999999", [1, 2]),
    ],
)  # fmt: skip
def test_visible_devices_are_read_as_cuda_reads_them(tmp_path: Path, visible: str, cards: list[int]) -> None:
    run(
        tmp_path,
        f"""
cuda.cuInit(0)
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
uuid, cards = ctypes.create_string_buffer(16), []
for device in range(count.value):
    assert cuda.cuDeviceGetUuid(uuid, device) == 0
    cards.append(uuid.raw[15])
assert cards == {cards}, cards
""",
        CUDA_VISIBLE_DEVICES=visible,
    )


def test_a_gpu_is_the_same_for_processes_that_number_it_differently(tmp_path: Path) -> None:
    reports = run(
        tmp_path,
        """
assert malloc(11 << 30) == 0  # of card 2
for cards, result in (("0", 0), ("1,2", 0), ("2", 2)):
    variables = {**os.environ, "CUDA_VISIBLE_DEVICES": cards}
    assert subprocess.call([sys.executable, "-c", other(14)], env=variables) == result, cards
""",
        CUDA_VISIBLE_DEVICES="2,1",
    )
    assert sorted(max(report.totals) for report in reports)[-2:] == [14 * GIB + BEGINNING, 14 * GIB + BEGINNING]
