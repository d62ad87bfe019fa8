import gc
import platform
import random
import subprocess
import sys

import pytest

from tests.app.fakes import RoundEstimator
from vramtui.cli.common.open_source import use_one_heap
from vramtui.core.observation import history
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.schema.settings import AlertRules
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession

GIB = 1 << 30
MEMORY = Memory(total=80 * GIB, used=40 * GIB, free=40 * GIB)
# Threads that each allocate and leave pieces: prints how many heaps the C library has made for them.
THREADS = """
import ctypes, threading
{first}
def churn():
    for _ in range(50):
        kept = [bytearray(5000 + at) for at in range(200)]
threads = [threading.Thread(target=churn) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
out = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fclose(ctypes.c_void_p(out))
"""


def churn(chance: random.Random, at: float) -> Sample:
    """Two cards whose processes are others at each look, with pids that are used again; now and then one fails."""

    def card(index: int) -> Gpu:
        rows = tuple(
            Process(pid=pid, type="C", used_memory=chance.randrange(GIB), name=f"job{pid}", started_at=at - pid % 7)
            for pid in chance.sample(range(1, 200), 24)
        )
        failed = chance.random() < 0.1
        return Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name="H200",
            state="failed" if failed else "ok",
            memory=Memory() if failed else MEMORY,
            processes=() if failed else rows,
        )

    return Sample(taken_at=at, source="x", host=Host(name="h"), gpus=(card(0), card(1)))


@pytest.mark.slow
def test_a_session_keeps_no_more_after_hours_of_churn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "KEEP_EXITED", 256)
    chance = random.Random(1)
    session = MonitorSession(predictor=Predictor(RoundEstimator()), alert_rules=AlertRules())
    held = []
    for at in range(600):
        session.ingest(churn(chance, 1000.0 + at))
        if at % 200 == 199:
            gc.collect()
            held.append(sys.getallocatedblocks())
    assert held[2] < held[1] * 1.01
    assert len(session.history.tracks) <= 256 + 48


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library has no arenas to be counted")
def test_all_threads_allocate_from_one_heap() -> None:
    first = f"from {use_one_heap.__module__} import use_one_heap; use_one_heap()"
    for before, count in (("", None), (first, 1)):
        said = subprocess.run([sys.executable, "-c", THREADS.format(first=before)], capture_output=True, check=True)
        heaps = said.stdout.count(b"<heap nr=")
        assert heaps == count if count else heaps > 1
