"""What single tensors take: the cache, the sizes of types, the rounding to blocks."""

import json
from pathlib import Path

import torch

from vramtui.estimators.traced.experiments.marks import Marks

MIB = 1 << 20
ELEMENTS = 1 << 20
DTYPES = (
    "float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int64", "int32", "int16", "int8", "uint16",
    "uint8", "bool", "complex64",
)  # fmt: skip


def cache() -> None:
    """What is freed stays reserved until `empty_cache`, unless a segment is still in use."""
    marks = Marks()
    marks.mark("nothing yet")
    small = torch.empty(1024, dtype=torch.uint8, device="cuda")
    marks.mark("1 KiB")
    middle = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    marks.mark("and 4 MiB")
    large = torch.empty(50 * MIB, dtype=torch.uint8, device="cuda")
    marks.mark("and 50 MiB")
    del large
    marks.mark("50 MiB freed")
    large = torch.empty(49 * MIB, dtype=torch.uint8, device="cuda")
    marks.mark("49 MiB again")
    del large, middle
    marks.mark("all but 1 KiB freed")
    torch.cuda.empty_cache()
    marks.mark("empty_cache")
    del small
    torch.cuda.empty_cache()
    marks.mark("1 KiB freed, empty_cache")
    marks.write()


def small_cache() -> None:
    """One tensor of 4 KiB: its segment stays when it is gone, until the cache is emptied."""
    marks = Marks()
    marks.mark("nothing yet")
    x = torch.zeros(1024, device="cuda")
    marks.mark("1024 numbers")
    del x
    marks.mark("deleted")
    torch.cuda.empty_cache()
    marks.mark("empty_cache")
    marks.write()


def dtypes() -> None:
    """A million numbers in each type."""
    marks = Marks()
    for name in DTYPES:
        numbers = torch.empty(ELEMENTS, dtype=getattr(torch, name), device="cuda")
        marks.mark(name)
        del numbers
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    marks.write()


def blocks() -> None:
    """A tensor of so many bytes takes whole blocks of 512."""
    marks = Marks()
    catalogue = Path(__file__).parents[2] / "lab" / "experiments.json"
    listed = next(one for one in json.loads(catalogue.read_bytes()) if one["key"] == "blocks")
    for size in map(int, listed["runs"][0]["labels"]):
        tensor = torch.empty(size, dtype=torch.uint8, device="cuda")
        marks.mark(str(size))
        del tensor
    marks.write()
