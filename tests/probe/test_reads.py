import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.driver.libraries import libraries
from vramtui.core.estimate.devices import CARDS
from vramtui.dryrun.cuda.environment import EmulatedCard, emulating, read_reports
from vramtui.dryrun.reads import read_places
from vramtui.probe.reads import Reads
from vramtui.probe.socket_dir import REPORTS

JOB = """
import ctypes, os, types
from vramtui.probe.reads import Reads

cuda = ctypes.CDLL(None)
context, place, value = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_int64(7)
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(place), 1 << 20) == 0
reads = Reads(types.SimpleNamespace(__file__="/nowhere/torch/__init__.py"))
reads.begin()

def show():
    for _ in range(3):
        cuda.cuMemcpyDtoH_v2(ctypes.byref(value), place, 8); print(value.value)

show()
cuda.cuMemcpyHtoD_v2(place, ctypes.byref(ctypes.c_int64(5)), 8)
cuda.cuMemcpyDtoH_v2(ctypes.byref(value), place, 8)
print(value.value, reads.count)
answer, is_known = reads.bring(lambda: cuda.cuMemcpyDtoH_v2(ctypes.byref(value), ctypes.c_uint64(place.value + 64), 8))
print(is_known, reads.bring(lambda: cuda.cuMemcpyDtoH_v2(ctypes.byref(value), place, 8))[1], flush=True)
thread = ctypes.c_ulong()  # one of C++, with nothing of Python below
assert cuda.pthread_create(ctypes.byref(thread), None, reads._call, None) == cuda.pthread_join(thread, None) == 0
os._exit(0)
"""


def test_each_read_of_a_computed_value_is_counted_with_its_line(tmp_path: Path) -> None:
    card = EmulatedCard(device=CARDS["RTX4090"], multiprocessors=128)
    script = tmp_path / "job.py"
    script.write_text(JOB)
    environment = emulating(os.environ, card, libraries(), tmp_path)
    ran = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout.split() == ["0", "0", "0", "5", "3", "False", "True"]  # what the host wrote is known
    (report,) = read_reports(tmp_path)
    assert report.reads == 4
    places = read_places(tmp_path)[0]  # though the process ended without another word
    (place,) = (one for one in places if one.path)
    assert (Path(place.path).name, place.function, place.times) == ("job.py", "show", 3)
    nowhere = [(other.times, other.decides) for other in places if not other.path]
    assert sorted(nowhere) == [(1, False), (1, True)]  # the probe's own, and the thread's
    assert place.code.startswith("cuda.cuMemcpyDtoH_v2")


def test_scores_of_a_library_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Trainer.evaluate` turns its reads into scores; `Trainer.predict` gives them to the job."""
    monkeypatch.setenv(REPORTS, str(tmp_path))
    reads, functions = Reads(SimpleNamespace(__file__="/nowhere/torch/__init__.py")), dict[str, Any]()
    code = "def read(act): act()\ndef evaluate(act): read(act)\ndef predict(act): read(act)\n"
    exec(compile(code, "/lib/site-packages/transformers/trainer.py", "exec"), functions)  # noqa: S102 - as above
    for name, inside in (("evaluate", "vramtui"), ("predict", "")):
        functions[name](reads.count_here)
        assert reads.last[3] == inside
