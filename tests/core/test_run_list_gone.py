"""A run whose process is gone is not running, whoever did not see it end."""

import os
import subprocess
import sys
import time

import msgspec
import psutil

from tests.examples import a_run
from vramtui.core.runs.run import StoredRun
from vramtui.core.runs.run_list import ending_words, with_gone
from vramtui.sources.host.processes import process_is_gone


def test_only_runs_of_this_host_whose_process_is_gone_have_ended() -> None:
    runs = [a_run(host=host, pid=pid, ended_at=None, ending="running") for host, pid in (("a", 1), ("a", 2), ("b", 1))]
    runs.append(a_run(host="a", pid=1, ended_at=None, ending="failed"))
    kept = with_gone([StoredRun(at, run) for at, run in enumerate(runs)], "a", lambda pid, _at: pid == 1)
    assert [one.run.ending for one in kept] == ["exited", "running", "running", "failed"]
    assert not kept[0].run.finished, "nobody saw its end: it teaches nothing"
    assert ending_words(kept[0].run, kept[0].run.last_known + 1) == "ended"
    assert msgspec.structs.replace(kept[0].run, ending="running") == runs[0]


def test_a_process_is_gone_when_its_pid_is_or_belongs_to_a_later_one() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert process_is_gone(ended.pid, time.time())
    started = psutil.Process().create_time()
    assert not process_is_gone(os.getpid(), started)
    assert process_is_gone(os.getpid(), started - 3600), "this pid belonged to another one then"
