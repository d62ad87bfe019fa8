"""The setting of a process: its rank in its job, and what its memory depends on: CUDA's loading of kernels,
PyTorch's release, and the settings of its allocator.

Nothing of the process is imported: PyTorch's release is in the `version.py` next to the library that it has loaded.

torchrun, accelerate, DeepSpeed and PyTorch Lightning set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (PyTorch 2.13,
`torch/distributed/elastic/agent/server/local_elastic_agent.py` and "Environment variable initialization" of
torch.distributed); srun sets SLURM_PROCID and SLURM_STEP_NUM_TASKS ("OUTPUT ENVIRONMENT VARIABLES" of srun(1)); Open
MPI sets OMPI_COMM_WORLD_RANK and _SIZE. What a process puts into its own environment later is not seen from outside.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Any, Literal

from .ancestors import link_target
from .containers import VARIABLES

LONGEST_SETTING = 1024
MOST_MAPS = 1 << 23  # bytes
MOST_VERSION = 1 << 12
# PyTorch reads them in this order (c10/core/AllocatorConfig.h, parseEnv).
ALLOC_CONF = (b"PYTORCH_ALLOC_CONF", b"PYTORCH_CUDA_ALLOC_CONF")
_LIBRARY = rb" (/[^\n]*)/lib/libtorch[a-z_]*\.so"
_VERSION = rb"""__version__[^=\n]*=\s*['"]([0-9]+\.[0-9]+[0-9A-Za-z.+-]{0,40})['"]"""


def module_loading_of(environment: bytes) -> Literal["eager", "lazy"] | None:
    """`eager` or `lazy`, as CUDA_MODULE_LOADING has it (CUDA C++ Programming Guide, "Lazy Loading"); else None."""
    value = _value(environment, b"CUDA_MODULE_LOADING").upper()
    return "eager" if value == b"EAGER" else "lazy" if value == b"LAZY" else None


def alloc_conf_of(environment: bytes) -> str | None:
    """Return the settings of PyTorch's allocator; None if there are none, or they are too long."""
    for name in ALLOC_CONF:
        text = _value(environment, name).decode("ascii", "replace")
        if text and len(text) <= LONGEST_SETTING and text.isprintable():
            return text
    return None


def torch_of(pid: int) -> str | None:
    """Return the release of PyTorch that a process has loaded; None if it has none or cannot be read."""
    library = re.search(_LIBRARY, _read(f"/proc/{pid}/maps", MOST_MAPS))
    if library is None:
        return None
    folder = os.fsdecode(library.group(1))
    match = re.search(_VERSION, _read(f"/proc/{pid}/root{folder}/version.py", MOST_VERSION))
    return match.group(1).decode("ascii") if match else None


# Programs that people start by a script of a common name, by a folder of its path.
PROGRAMS = {
    "comfyui": "ComfyUI",
    "kohya_ss": "kohya",
    "sd-scripts": "kohya",
    "text-generation-webui": "text-generation-webui",
    "stable-diffusion-webui": "stable-diffusion-webui",
}
# Programs that start a process for each model: Ollama its runners, llama-server (its router mode) one of itself.
PARENTS = ("ollama", "llama-server", "llama-swap")


def program_of(pid: int, command: str, environment: bytes, parent: str = "") -> str | None:
    """`app:` and the program that a process runs, or its notebook; else None. `parent` is the name of the program that
    started it. jupyter_server 2 gives a kernel the path of its notebook as JPY_SESSION_NAME
    (services/sessions/sessionmanager.py).
    """
    if "ipykernel" in command:
        notebook = os.path.basename(_value(environment, b"JPY_SESSION_NAME").decode("utf-8", "replace"))
        return "app:" + notebook if notebook.endswith(".ipynb") and notebook.isprintable() else None
    folders = "/".join([link_target(f"/proc/{pid}/cwd"), *command.split(" ")[:3]]).lower().split("/")
    known = next((PROGRAMS[name] for name in folders if name in PROGRAMS), None)
    return "app:" + (known or parent) if known or parent in PARENTS else None


def _value(environment: bytes, name: bytes) -> bytes:
    """A variable's value; nothing where it is not set."""
    for entry in environment.split(b"\0"):
        key, _, value = entry.partition(b"=")
        if key == name:
            return value
    return b""


def _read(path: str, most: int) -> bytes:
    """The first bytes of a plain file; nothing where it is none or may not be read. Never waits for a pipe's end."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


LONGEST = 1 << 18  # bytes of an environment
LONGEST_VALUE = 200
MOST_RANKS = 1 << 20
# Steps that srun has not made, as the batch script with its SLURM_PROCID of 0 (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
FIRST_SPECIAL_STEP = 0xFFFFFFF0
LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0", "ip6-localhost")  # noqa: S104 - an address that is read
NAMES = frozenset({
    "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "PMIX_NAMESPACE",
})  # fmt: skip


_OTHERS = ("CUDA_MODULE_LOADING", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "JPY_SESSION_NAME")
_ENTRY = re.compile(b"\0((?:" + "|".join((*sorted(NAMES), *VARIABLES, *_OTHERS)).encode() + b")=[^\0]*)")


def settings_in(environment: bytes) -> bytes:
    """The entries of an environment that the functions here read: few have any, and each would go through it all."""
    return b"\0".join(_ENTRY.findall(b"\0" + environment))


def rank_of(environment: bytes, host: str) -> dict[str, Any] | None:
    """`job`, `rank`, `size` and `launcher` of a process; None if its job has one process. Nothing is taken from its
    `environment` but the variables in `NAMES`; jobs of one machine are told apart by the name of the `host`.
    """
    known: dict[str, str] = {}
    for entry in environment.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = name.decode("ascii", "replace")
        if equals and text in NAMES:
            known[text] = "".join(filter(str.isprintable, value.decode("utf-8", "replace")))[:LONGEST_VALUE]
    place = _place(known.get("RANK"), known.get("WORLD_SIZE"))
    if place is not None:
        address, port = known.get("MASTER_ADDR", ""), known.get("MASTER_PORT", "")
        if not address or address.startswith(LOOPBACK):
            address = host
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in known else "torch.distributed"
        job = launcher + (":" + port if port else "") + " on " + address
        if known.get("SLURM_JOB_ID"):
            job = "slurm " + known["SLURM_JOB_ID"] + " " + job
        return dict(place, job=job, launcher=launcher)
    size = known.get("SLURM_STEP_NUM_TASKS") or known.get("SLURM_NTASKS")
    place, step = _place(known.get("SLURM_PROCID"), size), _number(known.get("SLURM_STEP_ID"))
    if place is not None and step is not None and step < FIRST_SPECIAL_STEP and known.get("SLURM_JOB_ID"):
        return dict(place, job="slurm {}.{}".format(known["SLURM_JOB_ID"], step), launcher="srun")
    place = _place(known.get("OMPI_COMM_WORLD_RANK"), known.get("OMPI_COMM_WORLD_SIZE"))
    # Open MPI 4 and 5 give all ranks of a job the one PMIx namespace.
    return place and dict(place, job="mpi " + (known.get("PMIX_NAMESPACE") or host), launcher="mpirun")


def _place(rank: str | None, size: str | None) -> dict[str, Any] | None:
    position, among = _number(rank), _number(size)
    if position is None or among is None or not 1 < among <= MOST_RANKS or position >= among:
        return None
    return {"rank": position, "size": among}


_DIGITS = re.compile("[0-9]{1,10}")  # `str.isascii` is newer than Python 3.6


def _number(text: str | None) -> int | None:
    return int(text) if text and _DIGITS.fullmatch(text) else None
