"""The workloads whose true peaks are recorded: `golden/workloads.json` has each by the name of its run."""

import json
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.schema.workload import Workload

RECORDED = "2.13"
"""The release of PyTorch that recorded figures are those of, where a file says no other."""

_FILE: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("golden").joinpath("workloads.json").read_text(encoding="utf-8")
)


class Case(msgspec.Struct, frozen=True):
    workload: Workload
    device: str


def _cases(kind: str) -> dict[str, Case]:
    return {
        name: Case(
            msgspec.convert({"model": _FILE["models"][case["model"]], "run": case["run"]}, Workload),
            case.get("device", "H200"),
        )
        for name, case in _FILE[kind].items()
    }


TRANSFORMERS, LAYER_LISTS = (
    {name: case.workload for name, case in _cases(kind).items()} for kind in ("transformers", "layer_lists")
)
WORKLOADS = TRANSFORMERS | LAYER_LISTS
DECODERS = _cases("decoders")
"""Decoders with adapters, sliding windows and generation (`golden/decoders.json`)."""
OTHERS = _cases("others")
"""Small models of every other kind (`golden/other_models.json`)."""


def model(name: str) -> Any:
    return msgspec.convert({"model": _FILE["models"][name], "run": {"kind": "train"}}, Workload).model
