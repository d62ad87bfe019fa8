"""Releases of PyTorch: which ones a trace is held to, each to its own CUDA build, and how one is read."""

import re

OLDEST, NEWEST = (2, 12), (2, 15)
"""The first and the last one. Where a fact of this package changed in between, its constant says with which."""
TAKES = f"a trace takes torch {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"


def release_of(version: str) -> tuple[int, int]:
    """`2.13.0+cu130` as (2, 13); (0, 0) for what is no version."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)
