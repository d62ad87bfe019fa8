"""Releases of PyTorch: the tested ones, each with its own CUDA build, and how one is read."""

import re

# The first, the first whose CUDA build engine `cuda` takes, and the last. A fact that changed says with which.
OLDEST, OLDEST_CUDA, NEWEST = (2, 12), (2, 8), (2, 15)
OLDEST_PYTHON = (3, 10)  # of these releases (Requires-Python of 2.13's metadata)
# The release whose rules a trace follows, but for attention, the workspaces of cuBLAS and cuDNN and the order of free
# blocks, which follow the one that runs.
RULES = (2, 13)
# Public scripts that ran on fake tensors and under the release's own CUDA build on a stubbed driver in November 2026,
# and the largest error of allocated memory.
HELD = {(2, 12): (31, 0.0), (2, 13): (32, 0.0), (2, 14): (31, 0.0), (2, 15): (32, 0.0)}
KNOWN = f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
TAKES = f"a dry run needs torch {KNOWN}, with engine cuda {OLDEST_CUDA[0]}.{OLDEST_CUDA[1]} at least"


def release_of(version: str) -> tuple[int, int]:
    """`2.13.0+cu130` as (2, 13); (0, 0) for other text."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def note_on(version: str) -> str:
    """A note on estimates for this release; empty for the one whose rules they follow."""
    release = release_of(version)
    if release == RULES or release not in HELD:
        return ""
    scripts, worst = HELD[release]
    return (
        f"torch {version} ran; attention, workspaces and free blocks follow it, other rules are PyTorch "
        f"{RULES[0]}.{RULES[1]}'s: "
        f"allocated was at most {worst:.2%} off this release's own in {scripts} public scripts"
    )
