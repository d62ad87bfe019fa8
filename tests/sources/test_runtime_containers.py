"""Which container or Slurm job a process runs in, by lines of /proc/PID/cgroup as the tools write them."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from vramtui.agent import containers
from vramtui.agent.containers import ASK_AGAIN, container_of, is_unnamed

ID = "9b1c0f2e4d7a" + "0123456789abcdef" * 3 + "0123"


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("0::/user.slice/user-1000.slice/session-3.scope\n", None),
        ("0::/\n", None),
        (f"0::/system.slice/docker-{ID}.scope\n", "docker 9b1c0f2e4d7a"),
        (f"12:memory:/docker/{ID}\n11:cpu:/docker/{ID}\n", "docker 9b1c0f2e4d7a"),
        (f"0::/user.slice/user-1000.slice/libpod-{ID}.scope/container\n", "podman 9b1c0f2e4d7a"),
        (
            f"0::/kubepods.slice/kubepods-pod1a2b3c4d_0123_4567_89ab_0123456789ab.slice/cri-containerd-{ID}.scope\n",
            "pod 1a2b3c4d",
        ),
        (f"4:memory:/kubepods/besteffort/pod1a2b3c4d-0123-4567-89ab-0123456789ab/{ID}\n", "pod 1a2b3c4d"),
        ("0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "slurm 4711.0"),
        ("9:memory:/slurm/uid_1000/job_4711/step_batch\n", "slurm 4711.batch"),
        ("0::/system.slice/slurmstepd.scope/job_4711\n", "slurm 4711"),
        ("0::/system.slice/nightly-job_12/x\n", None),
        ("0::/lxc.payload.web/system.slice\n", "lxc web"),
        ("\xff\n:::::\n", None),
    ],
)
def test_by_the_names_of_control_groups(groups: str, expected: str | None) -> None:
    assert container_of(groups.encode("latin-1")) == expected


POD = "0::/kubepods.slice/kubepods-pod1a2b3c4d_0123_4567_89ab_0123456789ab.slice\n"


@pytest.mark.parametrize(
    ("groups", "environment", "expected"),
    [
        (POD, "HOSTNAME=train-0\0KUBERNETES_SERVICE_HOST=10.0.0.1\0POD_NAMESPACE=team", "pod team/train-0"),
        (POD, "HOSTNAME=train-0\0KUBERNETES_SERVICE_HOST=10.0.0.1", "pod train-0"),
        (POD, "HOSTNAME=train-0", "pod 1a2b3c4d"),
        (POD, f"HOSTNAME={os.uname().nodename}\0KUBERNETES_SERVICE_HOST=10.0.0.1", "pod 1a2b3c4d"),
        (POD, f"HOSTNAME={os.uname().nodename}\0KUBERNETES_SERVICE_HOST=10.0.0.1\0POD_NAME=ddp-3\0POD_NAMESPACE=ml",
         "pod ml/ddp-3"),
        (POD, "HOSTNAME=a\x1b[2J\0KUBERNETES_SERVICE_HOST=10.0.0.1", "pod 1a2b3c4d"),
        ("0::/user.slice\n", "APPTAINER_NAME=torch.sif\0SINGULARITY_NAME=torch.sif", "apptainer torch.sif"),
        ("0::/user.slice\n", "SINGULARITY_NAME=old.simg", "singularity old.simg"),
        (f"0::/system.slice/docker-{ID}.scope\n", "HOSTNAME=9b1c0f2e4d7a", "docker 9b1c0f2e4d7a"),
        (f"0::/system.slice/docker-{ID}.scope\n", "A=b\0HOSTNAME=trainer\0C=d", "docker trainer"),
        (f"0::/system.slice/docker-{ID}.scope\n", "HOSTNAME=a\x1b[2J", "docker 9b1c0f2e4d7a"),
        (f"0::/system.slice/docker-{ID}.scope\n", f"HOSTNAME={os.uname().nodename}", "docker 9b1c0f2e4d7a"),
    ],
)  # fmt: skip
def test_by_the_environment_beside_them(groups: str, environment: str, expected: str) -> None:
    assert container_of(groups.encode(), environment.encode()) == expected


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of Docker and Podman; no name is kept from another test."""
    monkeypatch.setattr(containers, "DOCKER", (str(tmp_path / "docker"),))
    monkeypatch.setattr(containers, "PODMAN", (str(tmp_path / "podman"),))
    monkeypatch.setattr(containers, "known_names", {})
    return tmp_path


def test_a_name_that_is_not_written_yet_is_asked_for_again(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(containers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    groups = f"0::/system.slice/docker-{ID}.scope\n".encode()
    assert container_of(groups) == "docker 9b1c0f2e4d7a"
    assert is_unnamed("docker 9b1c0f2e4d7a")
    folder = engines / "docker" / "containers" / ID
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"Name": "/trainer"}))
    now[0] += ASK_AGAIN - 1
    assert container_of(groups) == "docker 9b1c0f2e4d7a"
    now[0] += 1
    assert container_of(groups) == "docker trainer"
    (folder / "config.v2.json").unlink()
    now[0] += ASK_AGAIN
    assert container_of(groups) == "docker trainer"
    assert not is_unnamed("docker trainer")


NAMED = (json.dumps({"ID": ID, "Name": "/trainer"}), json.dumps([{"id": "f" * 64}, {"id": ID, "names": ["eval"]}]))
OTHERWISE = ("", "[]", "{", '{"Name": 3}', '{"Name": "/a\\u001b[2J"}', "[" * 100_000)


@pytest.mark.parametrize(
    ("texts", "names"),
    [(NAMED, ("trainer", "eval")), *(((text, text), ("9b1c0f2e4d7a", "9b1c0f2e4d7a")) for text in OTHERWISE)],
)
def test_the_name_that_a_person_gave_stands_in_the_engines_files(
    engines: Path, texts: tuple[str, str], names: tuple[str, str]
) -> None:
    """What an engine writes otherwise leaves the id."""
    docker, podman = engines / "docker" / "containers" / ID, engines / "podman" / "overlay-containers"
    for folder, file, text in ((docker, "config.v2.json", texts[0]), (podman, "containers.json", texts[1])):
        folder.mkdir(parents=True)
        (folder / file).write_text(text)
    assert container_of(f"0::/system.slice/docker-{ID}.scope\n".encode()) == f"docker {names[0]}"
    assert container_of(f"0::/machine.slice/libpod-{ID}.scope/container\n".encode()) == f"podman {names[1]}"
