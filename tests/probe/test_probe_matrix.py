"""Jobs of every make, run with the probe and without it: what they print and how they end is the same to a byte."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.probe.conftest import JOBS, Start

POOL = """import multiprocessing as m
def f(x): return x * x
if __name__ == '__main__':
    p = m.get_context({how!r}).Pool(2)
    print(p.map(f, range(4)))
    p.close()
    p.join()
"""
SHOW = "import sys\nprint(sys.argv, sys.flags.isolated, sys.flags.no_site, sys.flags.ignore_environment)\n"
CHILD = "[sys.executable, '-c', 'import sys; print(sys.argv); sys.exit(9)', 'a b']"
PROGRAMS = {
    "pool, spawn": POOL.format(how="spawn"),
    "pool, fork": POOL.format(how="fork"),
    "pool, forkserver": POOL.format(how="forkserver"),
    "process, forkserver, by a signal": "import multiprocessing as m, os, signal\n"
    "def f(): os.kill(os.getpid(), signal.SIGKILL)\n"
    "if __name__ == '__main__':\n p = m.get_context('forkserver').Process(target=f)\n"
    " p.start(); p.join(); print(p.exitcode)\n",
    "executor of processes": "from concurrent.futures import ProcessPoolExecutor as E\nimport multiprocessing as m\n"
    "if __name__ == '__main__':\n with E(2, mp_context=m.get_context('forkserver')) as e:\n"
    "  print(list(e.map(abs, range(-3, 3))))\n",
    "os.fork": "import os\npid = os.fork()\nif not pid: os._exit(7)\nprint(os.waitpid(pid, 0)[1])\n",
    "threads": "import threading as t\nx = []\na = [t.Thread(target=x.append, args=(n,)) for n in range(5)]\n"
    "[b.start() for b in a]; [b.join() for b in a]\nprint(sorted(x), t.active_count())\n",
    "asyncio": "import asyncio\nasync def f():\n await asyncio.sleep(0); return 5\nprint(asyncio.run(f()))\n",
    "subprocess": f"import subprocess as s, sys\nprint(s.run({CHILD}, capture_output=True))\n",
    "subprocess, through a shell": "import subprocess as s\n"
    "print(s.run('printf x; kill -9 $$', shell=True, capture_output=True))\n",
    "posix_spawn": f"import os, sys\np = os.posix_spawn(sys.executable, {CHILD}, os.environ)\n"
    "print(os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]))\n",
    "exec": f"import os, sys\nos.execv(sys.executable, {CHILD})\n",
    "no standard input": "print(input()[::-1])\n",
    "exit code": "import sys\nprint('bye', flush=True); sys.exit(42)\n",
    "exit text": "raise SystemExit('no more')\n",
    "os._exit": "import os\nprint('a', flush=True); os._exit(3)\n",
    "uncaught": "def f(): raise ValueError('no')\nf()\n",
    "uncaught in a thread": "import threading as t\ndef f(): raise ValueError('no')\n"
    "a = t.Thread(target=f, name='one'); a.start(); a.join()\nprint('on')\n",
    "excepthook": "import sys\nsys.excepthook = lambda *a: print('mine', a[0].__name__)\n1 / 0\n",
    "atexit": "import atexit\natexit.register(print, 'last')\nprint('first')\n",
    "killed by a signal": "import os, signal\nprint('x', flush=True); os.kill(os.getpid(), signal.SIGTERM)\n",
    "aborts": "import os\nos.abort()\n",
    "own handler": "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *a: print('got it'))\n"
    "os.kill(os.getpid(), signal.SIGUSR1)\nprint(signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n",
    "keyboard interrupt": "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n",
    "open files": "import os\nprint(len(os.listdir('/proc/self/fd')))\n",
    "signals as they were": "import signal\nprint([(s.name, str(signal.getsignal(s))) for s in signal.Signals])\n"
    "print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_REAL))\n",
    "hooks": "import sys\nprint(sys.gettrace(), sys.getprofile(), sys.excepthook is sys.__excepthook__)\n",
    "warnings": "import warnings\nwarnings.warn('look')\n",
    "a module called torch": "import torch\nprint(torch.what)\n",
    "a torch that cannot be loaded": "try:\n import torch\nexcept RuntimeError as e: print(e)\n",
    "no torch at all": "try:\n import torch\nexcept ImportError as e: print(type(e).__name__, e.name)\n",
}
MODULES = {
    "a module called torch": "what = __spec__.name, __spec__.origin is not None, __file__ is not None\n",
    "a torch that cannot be loaded": "raise RuntimeError('broken torch')\n",
    "no torch at all": "raise ModuleNotFoundError('No module named torch', name='torch')\n",
}
FLAGS = [("-I",), ("-S",), ("-E",), ("-P",), ("-I", "-S", "-E"), ("-X", "dev")]


def _alone(command: list[str], cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, **more}, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_with_and_without(name: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text(PROGRAMS[name], encoding="utf-8")
    if name in MODULES:
        (tmp_path / "torch.py").write_text(MODULES[name], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    heard, alone = start("job.py"), _alone(["job.py"], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert heard.jobs == ()


@pytest.mark.torch
def test_the_same_with_a_data_loaders_workers(start: Start, tmp_path: Path) -> None:
    """Forked, spawned, from a server of forks, kept over epochs, one that fails, one that dies: the losses are the same
    to a bit, and only the job tells.
    """
    job = str(JOBS / "loaders.py")
    heard, alone = start(job), _alone([job], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert alone.stdout.count("0x1.") == 3 * 4 + 3 * 4
    assert "raises LookupError\ndies RuntimeError" in alone.stdout
    assert heard.job.hello is not None


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_the_same_with_pythons_own_flags(
    flags: tuple[str, ...], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "-P" in flags and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    (tmp_path / "job.py").write_text(SHOW, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    heard, alone = start(*flags, "job.py", "x"), _alone([*flags, "job.py", "x"], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_a_job_outlives_whoever_watches_it(tmp_path: Path) -> None:
    """`vramtui run` is killed with no chance to say goodbye; the job goes on to its end."""
    done, begun = tmp_path / "done", tmp_path / "begun"
    job = f"import time, pathlib as p; p.Path({str(begun)!r}).touch(); time.sleep(1.5); p.Path({str(done)!r}).touch()"
    command = [sys.executable, "-m", "vramtui", "run", "--", sys.executable, "-c", job]
    environment = {**os.environ, "VRAMTUI_DATA_DIR": str(tmp_path), "VRAMTUI_CONFIG_DIR": str(tmp_path)}
    watcher = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 60
    while not begun.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    while not done.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
