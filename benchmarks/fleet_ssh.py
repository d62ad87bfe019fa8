"""What many connections through the real OpenSSH cost: processor and memory of ours and of every ssh, on loopback.

An sshd of its own is started, and all hosts are that one: each runs the agent there on a stand-in driver. Needs root
and OpenSSH's server and client.

    python -m benchmarks.fleet_ssh --hosts 32 --interval 2 --seconds 30
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.installed.sleepers import sleepers
from tests.installed.stand_in import COMMANDS, StandIn
from tests.installed.test_sshd import Server

TICKS = os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    """The process and its descendants."""
    found = [pid]
    for one in found:
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            found += [int(child) for child in task.read_text().split()]
    return found


def seconds_of(pids: list[int]) -> float:
    """Processor time that they have used, those that they waited for included."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(sum(map(int, one[11:15])) for one in fields) / TICKS


def pss_of(pids: list[int]) -> int:
    """Their proportional memory in KiB."""
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in pids]
    return sum(int(line.split()[1]) for text in texts for line in text.splitlines() if line.startswith("Pss:"))


def main() -> None:
    """Record all hosts for a while, and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("hosts", 32), ("interval", 2), ("seconds", 30)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, sleepers(COMMANDS) as pids:
        folder = Path(place)
        server, stand_in = Server(folder / "server"), StandIn(folder, pids)
        env = stand_in.whole_environment(PATH=f"{server.commands}:/usr/bin:/bin")
        program = str(Path(sys.executable).with_name("vramtui"))
        names, pace = f"gpu[01-{asked.hosts:02}]", str(asked.interval)
        command = [program, "record", str(folder / "day.jsonl"), "--host", names, "--interval", pace]
        begun = time.monotonic()
        with subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as recorder:
            while len(list(folder.glob("day.*"))) < asked.hosts:
                time.sleep(0.1)
            print(f"{asked.hosts} hosts connected after {time.monotonic() - begun:.0f} s")
            time.sleep(2 * asked.interval)
            family = children(recorder.pid)
            before, since = (seconds_of(family), seconds_of(family[:1])), time.monotonic()
            time.sleep(asked.seconds)
            passed = time.monotonic() - since
            every, own = (seconds_of(family) - before[0]) / passed, (seconds_of(family[:1]) - before[1]) / passed
            print(f"processor: {every:.1%} of a core, of that ours {own:.1%}")
            ssh = family[1:]
            print(
                f"{len(ssh)} ssh: {pss_of(ssh) / 1024:.0f} MiB proportional; ours {pss_of(family[:1]) / 1024:.0f} MiB"
            )
            recorder.terminate()
        server.close()


if __name__ == "__main__":
    main()
