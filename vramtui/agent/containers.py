"""Which container or Slurm job a process runs in, by its control groups and its environment; no daemon is asked.

Docker, Podman, containerd and CRI-O name a group after the container's id of 64 hexadecimal digits, Kubernetes the one
around it after the pod, LXC after the container, and Slurm (cgroup.conf(5), both of its plugins) after job and step.

Kubernetes calls a pod's host by the pod's name, which stands in HOSTNAME, unless the pod shares the machine's network
(`hostNetwork`), as many that train on several machines do: then the machine's name stands there. Its name and namespace
stand in the environment where the pod's own description puts them there ("Expose Pod Information to Containers Through
Environment Variables").
Apptainer and Singularity make no group; they leave the image's name (APPTAINER_NAME).

The name that a person gave a container stands in files of the engine's, which root may read or, of an engine without
root, its user: Docker's `containers/ID/config.v2.json` ("Name", of the type Container in
container/container.go of Moby 20.10 to 28, daemon/container/container.go from 29 on), and the
`containers.json` of containers/storage ("id" and "names", containers.go of its release 1.59), which Podman uses. Else
HOSTNAME may tell: the engines put the container's host name there, which is its id unless a person chose another, or
the machine's own where it shares the machine's network.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
from typing import Any

LONGEST_CGROUP = 1 << 14  # bytes of /proc/PID/cgroup
_SLURM = re.compile(r"/job_(\d{1,10})(?:/step_([a-z0-9]{1,10}))?(?:/|$)")
_POD = re.compile(r"[/-]pod([0-9a-f]{8})[-_0-9a-f]{28}")
_ID = re.compile(r"(?:(docker|libpod|crio|cri-containerd)[-/])?(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_LXC = re.compile(r"/(?:lxc\.payload\.|lxc/)([A-Za-z0-9_.-]{1,60})")
_NAMES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


_IMAGES = (("APPTAINER_NAME", "apptainer"), ("SINGULARITY_NAME", "singularity"))
_MARKS = (b"KUBERNETES_SERVICE_HOST", *(name.encode() for name, _ in _IMAGES))
_POD_NAMES = ("POD_NAME", "K8S_POD_NAME", "KUBERNETES_POD_NAME")
_NAMESPACES = ("POD_NAMESPACE", "K8S_NAMESPACE", "KUBERNETES_NAMESPACE")
VARIABLES = ("KUBERNETES_SERVICE_HOST", "HOSTNAME", *_POD_NAMES, *_NAMESPACES, *(name for name, _ in _IMAGES))
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_HOST_NAME = re.compile(rb"(?:^|\0)HOSTNAME=([A-Za-z0-9][A-Za-z0-9.-]{0,252})(?:\0|$)")


@functools.lru_cache(1024)  # most processes of a host are in the same groups
def _is_in_none(groups: bytes) -> bool:
    text = groups.decode("utf-8", "replace")
    return not any(pattern.search(text) for pattern in (_SLURM, _POD, _ID, _LXC))


def container_of(groups: bytes, environment: bytes = b"") -> str | None:
    """`slurm 4711.0`, `pod team/train-0`, `pod 1a2b3c4d`, `docker trainer`, `docker 3f2a9c0d1e2f`, `lxc web` or
    `apptainer torch.sif`; None of a process that is in none of them, or where this program is in the same one: its own
    group is then `/`. `groups` is what /proc/PID/cgroup holds, `environment` /proc/PID/environ if that may be read.
    """
    known: dict[str, str] = {}  # variables that name a container, as far as their values are names
    is_marked = any(name in environment for name in _MARKS)
    if not is_marked and _is_in_none(groups):
        return None
    if is_marked:
        for entry in environment.split(b"\0"):
            name, _, value = entry.decode("utf-8", "replace").partition("=")
            if name in VARIABLES and _NAME.fullmatch(value):
                known[name] = value
    text = groups.decode("utf-8", "replace")
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        job = _SLURM.search(path) if "slurm" in path else None
        if job is not None:
            return "slurm " + job[1] + ("." + job[2] if job[2] else "")
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod, docker, lxc = _POD.search(path), _ID.search(path), _LXC.search(path)
        if pod is not None:
            name = ""
            if "KUBERNETES_SERVICE_HOST" in known:
                name = next((known[name] for name in _POD_NAMES if name in known), known.get("HOSTNAME", ""))
            space = next((known[name] + "/" for name in _NAMESPACES if name in known), "")
            return "pod " + (pod[1] if name in ("", os.uname().nodename) else space + name)
        if docker is not None:
            kind = _NAMES.get(docker[1] or "", docker[1] or "container")
            chosen = _HOST_NAME.search(environment)  # a host name that is neither its id nor the machine's name
            host = chosen[1].decode("ascii") if chosen else ""
            host = "" if docker[2].startswith(host) or host == os.uname().nodename else host
            return kind + " " + (name_of(kind, docker[2]) or host or docker[2][:12])
        if lxc is not None:
            return "lxc " + lxc[1]
    return next((kind + " " + known[name] for name, kind in _IMAGES if name in known), None)


DOCKER = ("/var/lib/docker", "~/.local/share/docker")
PODMAN = ("/var/lib/containers/storage", "~/.local/share/containers/storage")
MOST_KEPT = 1 << 22  # bytes of an engine's file
MOST_CONTAINERS = 1024  # whose names are kept
ASK_AGAIN = 60.0  # seconds; an engine may not have written the file yet, and a name that is known stays
_UNNAMED = re.compile(r"(?:docker|podman) [0-9a-f]{12}")

known_names: dict[tuple[str, str], tuple[float, str | None]] = {}


def name_of(kind: str, identifier: str) -> str | None:
    """The name that a person gave a container of `docker` or `podman`; None if the engine's files do not tell it to
    this user, who may ask again in a while.
    """
    now = time.monotonic()
    asked_at, name = known_names.get((kind, identifier), (-ASK_AGAIN, None))
    if name is None and now - asked_at >= ASK_AGAIN:
        names: list[Any] = []
        for folder in DOCKER if kind == "docker" else ():
            config = _json(os.path.join(os.path.expanduser(folder), "containers", identifier, "config.v2.json"))
            names.append(config.get("Name") if isinstance(config, dict) else None)
        folders = [os.path.expanduser(folder) for folder in PODMAN] if kind == "podman" else ()
        for folder, driver in itertools.product(folders, ("overlay", "vfs", "btrfs")):
            config = _json(os.path.join(folder, driver + "-containers", "containers.json"))
            for entry in config if isinstance(config, list) else ():
                if isinstance(entry, dict) and entry.get("id") == identifier and isinstance(entry.get("names"), list):
                    names += entry["names"]
        plain = (name.lstrip("/") for name in names if isinstance(name, str))
        name = next((name for name in plain if _NAME.fullmatch(name)), None)
        if len(known_names) >= MOST_CONTAINERS:
            known_names.clear()
        known_names[kind, identifier] = now, name
    return name


def is_unnamed(container: str | None) -> bool:
    """Return whether `container_of` found a container whose name is not known yet."""
    return container is not None and _UNNAMED.fullmatch(container) is not None


def _json(path: str) -> object:
    """Return what an engine keeps there; None if it cannot be read or is something else."""
    import json  # noqa: PLC0415 - once a container, and the dashboard's first rows wait for this module

    try:
        with open(path, "rb") as file:
            return json.loads(file.read(MOST_KEPT).decode("utf-8", "replace"))
    except (OSError, ValueError, RecursionError):
        return None
