"""Which container or Slurm job a process runs in, by the names that its control groups have.

Docker, Podman, containerd and CRI-O name a group after the container's id of 64 hexadecimal digits, Kubernetes the one
around it after the pod, LXC after the container, and Slurm (cgroup.conf(5), both of its plugins) after job and step.

Kubernetes calls a pod's host by the pod's name, which stands in HOSTNAME; its namespace stands in the environment
where the pod's own description puts it there ("Expose Pod Information to Containers Through Environment Variables").
Apptainer and Singularity make no group; they leave the image's name (APPTAINER_NAME).
"""

from __future__ import annotations

import re

LONGEST = 1 << 14  # bytes of /proc/PID/cgroup
_SLURM = re.compile(r"/job_(\d{1,10})(?:/step_([a-z0-9]{1,10}))?(?:/|$)")
_POD = re.compile(r"[/-]pod([0-9a-f]{8})[-_0-9a-f]{28}")
_ID = re.compile(r"(?:(docker|libpod|crio|cri-containerd)[-/])?(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_LXC = re.compile(r"/(?:lxc\.payload\.|lxc/)([A-Za-z0-9_.-]{1,60})")
_NAMES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


_IMAGES = (("APPTAINER_NAME", "apptainer"), ("SINGULARITY_NAME", "singularity"))
_NAMESPACES = ("POD_NAMESPACE", "K8S_NAMESPACE", "KUBERNETES_NAMESPACE")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


def container_of(groups: bytes, environment: bytes = b"") -> str | None:
    """`slurm 4711.0`, `pod team/train-0`, `pod 1a2b3c4d`, `docker 3f2a9c0d1e2f`, `lxc web` or `apptainer torch.sif`;
    None of a process that is in none of them, or where this program is in the same one: its own group is then `/`.

    Args:
        groups: what /proc/PID/cgroup holds.
        environment: what /proc/PID/environ holds, where that may be read.
    """
    known = _variables(environment)
    text = groups.decode("utf-8", "replace")
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        job = _SLURM.search(path) if "slurm" in path else None
        if job is not None:
            return "slurm " + job[1] + ("." + job[2] if job[2] else "")
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod, found, lxc = _POD.search(path), _ID.search(path), _LXC.search(path)
        if pod is not None:
            return "pod " + (_pod_name(known) or pod[1])
        if found is not None:
            return _NAMES.get(found[1] or "", found[1] or "container") + " " + found[2][:12]
        if lxc is not None:
            return "lxc " + lxc[1]
    return next((kind + " " + known[name] for name, kind in _IMAGES if name in known), None)


def _pod_name(known: dict[str, str]) -> str | None:
    """The pod's name, after its namespace where that is known; None where its environment does not tell."""
    if "KUBERNETES_SERVICE_HOST" not in known or "HOSTNAME" not in known:
        return None
    space = next((known[name] for name in _NAMESPACES if name in known), "")
    return space + ("/" if space else "") + known["HOSTNAME"]


def _variables(environment: bytes) -> dict[str, str]:
    """Those that tell of a container, as far as their values are names."""
    wanted = {"KUBERNETES_SERVICE_HOST", "HOSTNAME", *_NAMESPACES, *(name for name, _ in _IMAGES)}
    found = {}
    for entry in environment.split(b"\0"):
        name, _, value = entry.decode("utf-8", "replace").partition("=")
        if name in wanted and _NAME.fullmatch(value):
            found[name] = value
    return found
