import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.driver.libraries import libraries
from vramtui.estimators.analytic.sizes.partition import communicator_bytes

pytestmark = [
    pytest.mark.slow,  # each test starts processes
    pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="another Python is needed"),
]

ROOT = Path(__file__).parents[2]
USER = 12345
SYSTEM = Path("/usr/bin/python3")  # what another user may run
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
REFUSING = "#include <errno.h>\nint unshare(int flags) { (void)flags; errno = EPERM; return -1; }\n"
START = f"""
import runpy, sys
sys.path[:0] = {[str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]!r}
sys.argv[0] = "vramtui"
runpy.run_module("vramtui", run_name="__main__", alter_sys=True)
"""
HOLD = """
import ctypes, os, shutil, sys
cuda, address = ctypes.CDLL(None), ctypes.c_uint64()
assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(3 << 30)) == 0
"""
WRITE = """
os.makedirs("new/deep")
open("new/deep/file", "w").write("new")
open("old", "a").write(" and new")
assert open("old").read() == "old and new"
shutil.rmtree("folder")
os.makedirs("folder")
assert os.listdir("folder") == []
os.makedirs(os.path.expanduser("~/.cache/vt"))
assert os.path.exists(os.path.expanduser("~/.cache/vt"))
"""


def open_folder() -> str:
    own = Path(tempfile.gettempdir())
    return str(own) if all(path.stat().st_mode & 0o001 for path in (own, *own.parents)) else "/tmp"


def made_place(folder: str) -> Path:
    """A folder with those of a job and its user, with the driver."""
    place = Path(folder)
    place.chmod(0o755)  # for any user
    for name in ("job", "home", "runtime"):
        (place / name).mkdir(mode=0o700)
    shutil.copytree(libraries(), place / "runtime" / "vramtui_data_dir" / libraries().name)
    return place


def refusing_library(folder: str) -> str:
    """A library whose `unshare` refuses, as a container's does, where any user may load it."""
    Path(folder).chmod(0o755)
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-x", "c", "-", "-o", f"{folder}/refusing.so"]
    subprocess.run(command, input=REFUSING.encode(), check=True)
    return f"{folder}/refusing.so"


@pytest.fixture(scope="module")
def refusing() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="vt", dir=open_folder()) as folder:
        yield refusing_library(folder)


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vt", dir=open_folder()) as folder:
        place = made_place(folder)
        (place / "job" / "folder").mkdir()
        (place / "job" / "folder" / "kept").write_text("kept", encoding="utf-8")
        (place / "job" / "old").write_text("old", encoding="utf-8")
        yield place


def environment(place: Path, refusing: str = "") -> dict[str, str]:
    names = ("VRAMTUI_DATA_DIR", "VRAMTUI_CONFIG_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")
    own = {"HOME": str(place / "home"), "XDG_RUNTIME_DIR": str(place / "runtime"), "LD_PRELOAD": refusing}
    own |= {name: str(place / "runtime" / name.lower()) for name in names}
    return {**os.environ, **own, "COLUMNS": "200", "PYTHONDONTWRITEBYTECODE": "1"}


def run(
    place: Path, code: str, variables: Mapping[str, str], before: tuple[str, ...] = (), arguments: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    (place / "job" / "job.py").write_text(code, encoding="utf-8")
    python = str(SYSTEM) if before else sys.executable
    job = (str(SYSTEM), "job.py", *arguments)
    options = () if arguments else ("--json",)
    return subprocess.run(
        [*before, python, "-c", START, "dry-run", "--gpu", "RTX4090", *options, *job],
        cwd=place / "job", env=variables, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("has_namespace", [True, False], ids=["namespace", "none"])
@pytest.mark.parametrize("user", ["root", "ordinary"])
def test_a_job_is_answered_and_leaves_nothing(place: Path, refusing: str, user: str, *, has_namespace: bool) -> None:
    before: tuple[str, ...] = ()
    if user == "ordinary":
        if os.geteuid() or shutil.which("setpriv") is None:
            pytest.skip("only root can be another user")
        before = AS_USER
        for path in place.rglob("*"):
            os.chown(path, USER, USER)
    (place / "job" / "job.py").write_text(HOLD + WRITE, encoding="utf-8")
    left = everything(place / "job") | everything(place / "home")
    ran = run(place, HOLD + WRITE, environment(place, "" if has_namespace else refusing), before=before)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    (answer,) = json.loads(ran.stdout)["gpus"]
    assert answer["verdict"] == "fits"
    assert answer["result"]["process"] > 3 << 30
    notes = [note for note in answer["result"]["warnings"] if "namespace" in note]
    assert bool(notes) is not has_namespace
    assert everything(place / "job") | everything(place / "home") == left


RANKS = """
class Id(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]
rank = int(sys.argv[1]) if sys.argv[1:] else -1
if rank < 0:
    import subprocess
    ranks = [subprocess.Popen([sys.executable, sys.argv[0], str(one)]) for one in range(2)]
    sys.exit(max(one.wait() for one in ranks))
comm, number, unique = ctypes.c_void_p(), ctypes.c_int64(rank + 1), Id(b"x" * 100)
assert cuda.ncclCommInitRank(ctypes.byref(comm), 2, unique, rank) == 0
assert cuda.cudaMemcpy(address, ctypes.byref(number), ctypes.c_size_t(8), 1) == 0
assert cuda.ncclAllReduce(address, address, ctypes.c_size_t(1), 4, 0, comm, None) == 0
assert cuda.cudaMemcpy(ctypes.byref(number), address, ctypes.c_size_t(8), 2) == 0
assert number.value == 3, number.value
"""


DAEMON = "import os, time\nif os.fork():\n    os._exit(0)\nos.setsid()\ntime.sleep(1)\n"


@pytest.mark.parametrize(("code", "is_refused"), [(HOLD + RANKS, True), (DAEMON + HOLD, False)])
def test_collectives_arrive_and_what_a_job_leaves_is_waited_for(
    place: Path, refusing: str, code: str, *, is_refused: bool
) -> None:
    ran = run(place, code, environment(place, refusing if is_refused else ""))
    assert ran.returncode == 0, ran.stderr + ran.stdout
    result = json.loads(ran.stdout)["gpus"][0]["result"]
    communicator = communicator_bytes((9, 0))[0] // 8 if "nccl" in code else 0  # no switch between GeForces
    assert result["process"] - result["context"] == (3 << 30) + communicator


def test_a_job_that_fails_without_a_namespace_is_told_why(place: Path, refusing: str) -> None:
    ran = run(
        place, "import subprocess, sys; sys.exit(subprocess.call(['mkdir', 'new']))", environment(place, refusing)
    )
    assert ran.returncode == 2
    error = json.loads(ran.stdout)["gpus"][0]["error"]
    assert error.startswith("the job ended with 1 before it used CUDA; no namespace of its own")
    assert "whatever else writes is refused" in error
    assert not (place / "job" / "new").exists()


NAMES = ["a b", "a:b", "a;b", "données", "new\nline", "x" * 200 + "/" + "y" * 200 + "/" + "z" * 190]
VARIABLES = ["TMPDIR", "HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR"]


@pytest.mark.parametrize(("variables", "name"), [
    (VARIABLES, NAMES[1]),
    (VARIABLES, NAMES[-1]),
    *(pytest.param([one], name, marks=pytest.mark.slow) for one in VARIABLES for name in NAMES),
])  # fmt: skip
def test_folders_of_any_name(place: Path, variables: list[str], name: str) -> None:
    (place / name).mkdir(parents=True)
    others = {name: value for name, value in environment(place).items() if name != "VRAMTUI_DATA_DIR"}
    others |= dict.fromkeys(variables, str(place / name))
    if len(variables) == 1 or name != NAMES[-1]:  # the driver is compiled by one of them, which takes five seconds
        shutil.copytree(libraries(), Path(others["XDG_CACHE_HOME"]) / "vramtui" / libraries().name)
    ran = run(place, HOLD, others)
    assert ran.returncode == 0, ran.stderr + ran.stdout


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount")
def test_data_on_mounts_of_any_name(place: Path) -> None:
    names = (b"donn\xc3\xa9es", b"\xff\xfe", b"a b", b"a,b:c", b"new\nline", b"back\\slash")
    data = [os.fsencode(place) + b"/" + name for name in names]
    for folder in data:
        Path(os.fsdecode(folder)).mkdir()
    mounting = 'for one in "$@"; do mount -t tmpfs none "$one" && echo here > "$one/data"; [ "$one" = "$0" ] && break; '
    mounting += 'shift; done; shift; exec "$@"'
    code = f"{HOLD}\nfor one in {data!r}:\n    assert open(one + b'/data').read() == 'here\\n'"
    last, *_ = reversed(data)
    before = ("unshare", "-m", "sh", "-c", mounting, *map(os.fsdecode, (last, *data)))
    ran = run(place, code, environment(place), before=before)
    assert ran.returncode == 0, ran.stderr + ran.stdout


STUBBORN = """
import os, signal, subprocess, sys, time
code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
os.write(2, f"{child.pid}\\n".encode())
"""


def wait_for(condition: Callable[[], bool], seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while not (is_true := condition()) and time.monotonic() < until:
        time.sleep(0.05)
    return is_true


def is_gone(pid: int) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return True


# A killed process ends thread by thread, and the last one gives the memory back.
THREADS = """
import threading, time
for _ in range(8):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
large = b"x" * (1 << 29)
from vramtui.__main__ import main
main()
"""


@pytest.mark.parametrize(
    "end", ["exit", "KILL", *(pytest.param(one, marks=pytest.mark.slow) for one in ("timeout", "TERM"))]
)
def test_the_whole_tree_and_all_folders_end_with_the_command(place: Path, end: str) -> None:
    (place / "tmp").mkdir()
    code = HOLD + STUBBORN + ("" if end == "exit" else "time.sleep(60)")
    (place / "job" / "job.py").write_text(code, encoding="utf-8")
    options = ["--timeout", "1"] if end == "timeout" else []
    job = (str(SYSTEM), "job.py")
    with subprocess.Popen(
        [sys.executable, *(("-c", THREADS) if end == "KILL" else ("-m", "vramtui")), "dry-run", "--gpu", "RTX4090",
         "--show-output", *options, *job],
        cwd=place / "job", env=environment(place) | {"TMPDIR": str(place / "tmp"), "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as ran:  # fmt: skip
        assert ran.stderr is not None
        child = int(ran.stderr.readline())
        assert not is_gone(child) or end == "exit"
        if end in {"TERM", "KILL"}:
            ran.send_signal(getattr(signal, f"SIG{end}"))
        ran.stderr.read()
    assert wait_for(lambda: is_gone(child))
    assert wait_for(lambda: not list((place / "tmp").iterdir())), list((place / "tmp").iterdir())


PARTS = """
import subprocess, sys
count, gib = map(int, sys.argv[1:])
code = f"import ctypes, os, sys, time; r = ctypes.CDLL(None).cudaMalloc(ctypes.byref(ctypes.c_uint64()), "
code += f"ctypes.c_size_t({gib} << 30)); os.write(1, b'.'); sys.stdin.read(); sys.exit(bool(r))"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
parts = [subprocess.Popen([sys.executable, "-c", code], **pipes) for _ in range(count)]
for part in parts:
    part.stdout.read(1)
for part in parts:
    part.stdin.close()
sys.exit(max(part.wait() for part in parts))
"""


@pytest.mark.parametrize(("count", "gib", "code", "words"), [
    (2, 11, 0, "✓ fits RTX4090: needs 22.6 GiB, has 23.6 GiB: 1.0 GiB spare"),
    (2, 14, 1, "✗ does not fit RTX4090: build asked for 14.0 GiB more with 14.6 GiB of 23.6 GiB taken"),
])  # fmt: skip
def test_the_verdict_is_that_of_all_processes(place: Path, count: int, gib: int, code: int, words: str) -> None:
    ran = run(place, PARTS, environment(place), arguments=(str(count), str(gib)))
    assert (ran.returncode, ran.stdout.splitlines()[0]) == (code, words), ran.stderr
