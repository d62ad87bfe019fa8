"""A job's hosts through a real Slurm on loopback: munged, slurmctld and slurmd of one node."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE, free_port, until

PLACES = "/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
DAEMONS = {name: shutil.which(name, path=PLACES) for name in ("munged", "slurmctld", "slurmd")}
COMMANDS = {name: shutil.which(name, path=PLACES) for name in ("sbatch", "squeue", "scontrol", "srun")}
pytestmark = pytest.mark.skipif(
    not (all(DAEMONS.values()) and all(COMMANDS.values()) and os.getuid() == 0),
    reason="needs slurmctld, slurmd and munge (Debian: slurm-wlm, munge), and root, as whom slurmd begins",
)
MUNGE = (("key-file", "key"), ("socket", "socket"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))
CONFIGURATION = Path(__file__).with_name("slurm.conf").read_text(encoding="utf-8")


class Cluster:
    """Daemons that run, with a configuration and a key of their own.

    Args:
        folder: where all that they have is kept; a short path, as sockets need it.
        environment: of the daemons, which their jobs inherit.
    """

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        controller, node = free_port(), free_port()
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, controller=controller, node=node, folder=folder)
        (folder / "slurm.conf").write_text(text)
        (folder / "gres.conf").write_text("Name=gpu Type=h200 File=/dev/null\nName=gpu Type=h200 File=/dev/zero\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)
        self.environment = {**environment, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": PLACES}
        self._processes: list[subprocess.Popen[bytes]] = []
        munge = [f"--{name}={folder}/munge.{end}" for name, end in MUNGE]
        self._begin("munged", "--force", "--foreground", *munge)
        until((folder / "munge.socket").exists)
        self._begin("slurmctld", "-D", "-c")
        self._begin("slurmd", "-D", "-c")
        until(lambda: "idle" in self.say("sinfo", "--noheader", "--format=%t"))

    def say(self, command: str, *arguments: str) -> str:
        ended = subprocess.run(
            [command, *arguments], env=self.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        return ended.stdout + ended.stderr

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def _begin(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}.out").open("wb")
        path = DAEMONS[name]
        assert path is not None
        self._processes.append(
            subprocess.Popen([path, *arguments], env=self.environment, stdout=log, stderr=subprocess.STDOUT)
        )
        log.close()


@pytest.fixture
def cluster(stand_in: StandIn) -> Iterator[Cluster]:
    with TemporaryDirectory(prefix="vs") as folder:
        made = Cluster(Path(folder), stand_in.whole_environment())
        try:
            yield made
        finally:
            made.close()


def test_the_hosts_of_a_running_job_by_a_step_of_its_own(cluster: Cluster, program: str) -> None:
    """The job has both processors and both cards of the node, and the step takes none of them."""
    asked = ("--parsable", "--ntasks=2", "--gres=gpu:2", "--output=/dev/null", "--wrap=sleep 300")
    job = cluster.say("sbatch", *asked).strip()
    assert job.isdigit(), job
    until(lambda: "RUNNING" in cluster.say("squeue", "--noheader", f"--jobs={job}", "--format=%T"))
    said = cluster.say(program, "ps", "--slurm", job, "--json")
    found = json.loads(said)
    assert [gpu["memory"]["used"] for gpu in found["gpus"]] == [40 * GIB, 10 * GIB], said
    # The step ends with the command; slurmctld hears so a moment later.
    until(lambda: "vramtui" not in cluster.say("squeue", "--noheader", "--steps", f"--jobs={job}", "--format=%j"))
    cluster.say("scancel", job)
    until(lambda: job not in cluster.say("squeue", "--noheader", "--format=%A", "--states=RUNNING"))
    said = cluster.say(program, "ps", "--slurm", job)
    assert f"job {job} has no hosts now" in said
    assert "Traceback" not in said
