"""Which rank of which job a process is, by the variables that launchers give it.

torchrun, accelerate, DeepSpeed and PyTorch Lightning set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (PyTorch 2.13,
`torch/distributed/elastic/agent/server/local_elastic_agent.py` and "Environment variable initialization" of
torch.distributed); srun sets SLURM_PROCID and SLURM_STEP_NUM_TASKS ("OUTPUT ENVIRONMENT VARIABLES" of srun(1)); Open
MPI sets OMPI_COMM_WORLD_RANK and _SIZE. What a process puts into its own environment later is not seen from outside.
"""

from __future__ import annotations

from typing import Any

LONGEST = 1 << 18  # bytes of an environment
LONGEST_VALUE = 200
MOST_RANKS = 1 << 20
# Steps that srun has not made, as the batch script with its SLURM_PROCID of 0 (slurm.h: SLURM_MAX_NORMAL_STEP_ID).
FIRST_SPECIAL_STEP = 0xFFFFFFF0
LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0", "ip6-localhost")  # noqa: S104 - an address that is read
NAMES = frozenset(
    (
        "RANK",
        "WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TORCHELASTIC_RUN_ID",
        "SLURM_JOB_ID",
        "SLURM_STEP_ID",
        "SLURM_PROCID",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "PMIX_NAMESPACE",
    )
)


def rank_of(environment: bytes, host: str) -> dict[str, Any] | None:
    """`job`, `rank`, `size` and `launcher` of a process; None of one that is no rank of a job of several.

    Args:
        environment: what /proc/PID/environ holds. Nothing is taken from it but the variables in `NAMES`.
        host: the machine's name: jobs of one machine only are told apart by it.
    """
    known = {}
    for entry in environment.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = name.decode("ascii", "replace")
        if equals and text in NAMES:
            known[text] = "".join(filter(str.isprintable, value.decode("utf-8", "replace")))[:LONGEST_VALUE]
    return _by_torch(known, host) or _by_slurm(known) or _by_mpi(known, host)


def _by_torch(known: dict[str, str], host: str) -> dict[str, Any] | None:
    place = _place(known.get("RANK"), known.get("WORLD_SIZE"))
    if place is None:
        return None
    address, port = known.get("MASTER_ADDR", ""), known.get("MASTER_PORT", "")
    if not address or address.startswith(LOOPBACK):
        address = host
    job = address + (":" + port if port else "")
    if known.get("SLURM_JOB_ID"):
        job = "slurm " + known["SLURM_JOB_ID"] + " " + job
    return dict(place, job=job, launcher="torchrun" if "TORCHELASTIC_RUN_ID" in known else "torch.distributed")


def _by_slurm(known: dict[str, str]) -> dict[str, Any] | None:
    size = known.get("SLURM_STEP_NUM_TASKS") or known.get("SLURM_NTASKS")
    place, step = _place(known.get("SLURM_PROCID"), size), _number(known.get("SLURM_STEP_ID"))
    if place is None or step is None or step >= FIRST_SPECIAL_STEP or not known.get("SLURM_JOB_ID"):
        return None
    return dict(place, job="slurm {}.{}".format(known["SLURM_JOB_ID"], step), launcher="srun")


def _by_mpi(known: dict[str, str], host: str) -> dict[str, Any] | None:
    place = _place(known.get("OMPI_COMM_WORLD_RANK"), known.get("OMPI_COMM_WORLD_SIZE"))
    if place is None:
        return None
    # Open MPI 4 and 5 give all ranks of a job the one PMIx namespace.
    return dict(place, job="mpi " + (known.get("PMIX_NAMESPACE") or host), launcher="mpirun")


def _place(rank: str | None, size: str | None) -> dict[str, Any] | None:
    found, among = _number(rank), _number(size)
    if found is None or among is None or not 1 < among <= MOST_RANKS or found >= among:
        return None
    return {"rank": found, "size": among}


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 11 and text.isascii() and text.isdigit() else None
