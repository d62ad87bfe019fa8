"""Releases of PyTorch: the tested ones, each with its own CUDA build, and how one is read."""

import re

# The first, the first whose CUDA build engine `cuda` takes, and the last. A fact that changed says with which.
OLDEST, OLDEST_CUDA, NEWEST = (2, 12), (2, 8), (2, 15)
OLDEST_PYTHON = (3, 10)  # of these releases (Requires-Python of 2.13's metadata)
# The release whose rules a trace follows, but for attention, the workspaces of cuBLAS and cuDNN and the order of free
# blocks, which follow the one that runs: in 31 or 32 public scripts allocated was what each one's own CUDA build has.
RULES = (2, 13)
KNOWN = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
TAKES = f"a dry run needs torch {KNOWN}, with engine cuda {OLDEST_CUDA[0]}.{OLDEST_CUDA[1]} at least"


def release_of(version: str) -> tuple[int, int]:
    """`2.13.0+cu130` as (2, 13); (0, 0) for other text."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
