"""Which container or Slurm job a process runs in, by the names that its control groups have.

Docker, Podman, containerd and CRI-O name a group after the container's id of 64 hexadecimal digits, Kubernetes the one
around it after the pod, LXC after the container, and Slurm (cgroup.conf(5), both of its plugins) after the job.
"""

from __future__ import annotations

import re

LONGEST = 1 << 14  # bytes of /proc/PID/cgroup
_SLURM = re.compile(r"/job_(\d{1,10})(?:/|$)")
_POD = re.compile(r"[/-]pod([0-9a-f]{8})[-_0-9a-f]{28}")
_ID = re.compile(r"(?:(docker|libpod|crio|cri-containerd)[-/])?(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_LXC = re.compile(r"/(?:lxc\.payload\.|lxc/)([A-Za-z0-9_.-]{1,60})")
_NAMES = {"libpod": "podman", "crio": "cri-o", "cri-containerd": "containerd"}


def container_of(groups: bytes) -> str | None:
    """`slurm 4711`, `pod 1a2b3c4d`, `docker 3f2a9c0d1e2f` or `lxc web`; None of a process that is in none of them, or
    where this program is in the same one: its own group is then `/`.

    Args:
        groups: what /proc/PID/cgroup holds.
    """
    text = groups.decode("utf-8", "replace")
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        job = _SLURM.search(path) if "slurm" in path else None
        if job is not None:
            return "slurm " + job[1]
    for line in text.splitlines():
        path = line.split(":", 2)[-1]
        pod, found, lxc = _POD.search(path), _ID.search(path), _LXC.search(path)
        if pod is not None:
            return "pod " + pod[1]
        if found is not None:
            return _NAMES.get(found[1] or "", found[1] or "container") + " " + found[2][:12]
        if lxc is not None:
            return "lxc " + lxc[1]
    return None
