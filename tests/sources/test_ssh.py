import stat
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import pytest

from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.observation.readings import Absence, Sample
from vramtui.records.recording.files import LiveRecording
from vramtui.sources import ssh
from vramtui.sources.ssh import job_hosts, srun_arguments

CARD = (
    "0, GPU-aaaa, 00000000:01:00.0, 550.54.15, 81559, 1024, 79900, 635, 37, 12, 123.45, 700.00, 41, 1980, 2619, [N/A], "
    "5, 16, 0, 0x0000000000000004, 9.0, Disabled, NVIDIA H100 80GB HBM3"
)
FRAME = f"""@ {ssh.GPU_COLUMNS}
gpu07
{CARD}
@apps 0
4213, GPU-aaaa, 900, python
99, GPU-aaaa, 10, [Not Found]
@ps
  4213 anna     Sun Nov 22 09:00:05 2026 python train.py --x 1,2
@end""".encode()


def sample_of(frame: bytes) -> Sample:
    frames = ssh.SmiFrames(lambda: 50.0)
    found = [frames.take(line) for line in frame.split(b"\n")]
    assert found[:-1] == [None] * (len(found) - 1)
    assert found[-1] is not None
    return found[-1]


def test_a_frame_is_a_sample_and_an_old_program_is_asked_for_less() -> None:
    sample = sample_of(FRAME)
    (gpu,) = sample.gpus
    assert (gpu.name, gpu.memory.total, gpu.utilization) == ("NVIDIA H100 80GB HBM3", 81559 * MIB, 37)
    assert gpu.throttle_reasons == ("power cap",)
    first, second = gpu.processes
    assert (first.pid, first.user, first.command) == (4213, "anna", "python train.py --x 1,2")
    assert (first.used_memory, first.started_at, first.state) == (900 * MIB, 1795338005.0, "running")
    assert (second.pid, second.user, second.absent["user"]) == (99, None, Absence.NO_ANSWER)
    assert sample.host.name == "gpu07"
    card = "0, GPU-aaaa, 00000000:01:00.0, 450.1, 16160, 100, 16060, 3, Tesla V100"
    frame = f"@ {ssh.OLD_COLUMNS}\nold\n{card}\n@apps 0\nNo running processes found\n@ps\n@end".encode()
    (gpu,) = sample_of(frame).gpus
    assert (gpu.memory.used, gpu.absent["power_watts"]) == (100 * MIB, Absence.DRIVER_TOO_OLD)
    failed = f"@ {ssh.GPU_COLUMNS}\nx\nNVIDIA-SMI has failed\n@apps 9\n@ps\n@end".encode()
    with pytest.raises(UserError, match="the NVIDIA driver is not loaded"):
        sample_of(failed)


def test_a_greeting_is_passed_over_and_waits_grow_to_a_minute() -> None:
    lines = ssh.FarLines(LiveRecording)
    assert [lines.take(line) for line in (b"Welcome to gpu07!", b"", b"vramtui-smi 1 9")] == [None] * 3
    assert [lines.take(line) for line in FRAME.split(b"\n")][-1] is not None
    other = ssh.FarLines(LiveRecording)
    with pytest.raises(UserError, match="not a recording"):
        deque(map(other.take, [b"yes"] * 1000), maxlen=0)
    waits = ssh.backoff(lambda: 0.5)
    assert [next(waits) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert {round(next(ssh.backoff()), 3) for _ in range(20)} != {1.0}


def test_four_handshakes_at_once_on_one_first_hop() -> None:
    most, now, lock = 0, 0, threading.Lock()
    handshakes = ssh.Handshakes(lambda host: "bastion" if host.startswith("in") else host)

    def connect(host: str) -> None:
        nonlocal most, now
        with handshakes.turn(host):
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.02)
            with lock:
                now -= 1

    threads = [threading.Thread(target=connect, args=(f"in{at}",)) for at in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == ssh.AT_ONCE


@pytest.mark.parametrize(
    ("said", "code", "sentence"),
    rows(__file__, "what_ssh_says_becomes_a"),
)  # fmt: skip
def test_what_ssh_says_becomes_a_sentence(said: str, code: int, sentence: str) -> None:
    assert ssh.failure_of("gpu01", said, code).message.startswith(sentence)


def test_the_far_end_is_one_word_for_any_shell_and_a_step_takes_nothing_from_its_job() -> None:
    """sh, bash, zsh, fish and csh all take it: one pair of single quotes, no newline, no `!`."""
    command = ssh.far_command(0.5, 12345)
    assert command.startswith("exec sh -c '")
    assert command.endswith("'")
    assert command.count("'") == 2
    assert not set("\n!") & set(command)
    arguments = srun_arguments("4711", "gpu01", 2.0, 100)
    assert arguments[:3] == ("srun", "--jobid=4711", "--overlap")
    assert {"--nodelist=gpu01", "--mem=0", "--gres=none", "--ntasks=1"} <= set(arguments)
    assert arguments[-3:-1] == ("sh", "-c")
    said = subprocess.run(["/bin/sh", "-n", "-c", arguments[-1]], check=False, capture_output=True)
    assert said.returncode == 0, said.stderr


GROUPS = {"train": ("gpu[01-02]", "big"), "all": ("a,b",)}


@pytest.mark.parametrize(("asked", "found"), rows(__file__, "what_is_meant"))
def test_what_is_meant(asked: str, found: list[str]) -> None:
    assert list(ssh.host_names([asked], GROUPS)) == found


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("-oProxyCommand=touch /tmp/x", "is not a host name"), ("user@-oProxyCommand=x", "is not a host name"),
        ("-l@gpu01", "is not a host name"), ("gpu01;reboot", "is not a host name"), ("gpu 01", "is not a host name"),
        ("$(reboot)", "is not a host name"), ("", "nothing is not a host name"), ("gpu[3-1]", "3-1 is not a range"),
        ("gpu[x]", r"\[x\] is not a range; write gpu\[01-08\]"), ("gpu[01", "is not a host name"),
        ("gpu[1-99999]", "is not a range of at most"), ("a[1-99]b[1-99]", f"more than {ssh.MOST_HOSTS} hosts"),
        ("@trian", r"no group of hosts called trian \(did you mean train\?\)"), ("\x1b[2J", "is not"),
    ],
)  # fmt: skip
def test_what_no_host_is_called(asked: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as raised:
        ssh.host_names([asked], GROUPS)
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("asked", ["-x" + "a" * 9000, "r[1-" + "9" * 5 + "x" * 9000 + "]", "a," * 3000 + "-"])
def test_a_sentence_is_never_endless(asked: str) -> None:
    with pytest.raises(UserError) as raised:
        ssh.host_names([asked], {})
    assert len(str(raised.value)) < 1000


FAKE = """#!{python}
import sys
arguments = " ".join(sys.argv[1:])
answers = {answers!r}
for begin, (code, text) in answers.items():
    if arguments.startswith(begin):
        (sys.stderr if code else sys.stdout).write(text)
        raise SystemExit(code)
raise SystemExit(9)
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake(folder: Path, name: str, answers: dict[str, tuple[int, str]]) -> None:
    path = folder / name
    path.write_text(FAKE.format(python=sys.executable, answers=answers))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


SQUEUE = "--noheader --jobs={} --format=%A|%T|%u|%N"


def test_the_hosts_of_a_job_and_of_an_array_where_slurm_is_installed(commands: Path) -> None:
    rows = "4711|RUNNING|anna|gpu[01-02]\n4712|RUNNING|anna|gpu02\n4713|PENDING|anna|\n"
    fake(commands, "squeue", {SQUEUE.format("4711"): (0, rows)})
    fake(
        commands,
        "scontrol",
        {"show hostnames gpu[01-02]": (0, "gpu01\ngpu02\n"), "show hostnames gpu02": (0, "gpu02\n")},
    )
    assert job_hosts("4711") == ({"gpu01": "4711", "gpu02": "4711"}, "anna")


@pytest.mark.usefixtures("commands")
def test_where_slurm_is_not_installed() -> None:
    with pytest.raises(UserError, match="squeue not found; run this"):
        job_hosts("5")


@pytest.mark.parametrize(("job", "answer", "said"), rows(__file__, "a_job_without_hosts_is"))
def test_a_job_without_hosts_is_a_sentence(commands: Path, job: str, answer: tuple[int, str], said: str) -> None:
    fake(commands, "squeue", {"": answer})
    with pytest.raises(UserError, match=said):
        job_hosts(job)
