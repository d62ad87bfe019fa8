"""Attention takes what it does in each release's CUDA build, forward and backward, with shared heads and without."""

import json
from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import TraceRequest

pytestmark = pytest.mark.torch
ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "attention_memory.json"


def hold_to(file: Path) -> None:
    """Trace the script that measured them; it raises where it finds others."""
    script = str(ROOT / "tests" / "recorded" / "attention_memory.py")
    WARM.trace(TraceRequest(path=script, arguments=("--check", str(file)), device=card("H200")))


def test_each_call_takes_what_this_release_does() -> None:
    hold_to(GOLDEN)


def test_another_figure_is_seen(tmp_path: Path) -> None:
    answers = json.loads(GOLDEN.read_text(encoding="utf-8"))
    for release in answers.values():
        next(iter(release.values()))[1] += 512
    (tmp_path / "others.json").write_text(json.dumps(answers), encoding="utf-8")
    with pytest.raises(UserError, match="traced, then measured"):
        hold_to(tmp_path / "others.json")


def test_shared_heads_are_not_repeated_from_the_release_on_whose_kernel_takes_them() -> None:
    answers = json.loads(GOLDEN.read_text(encoding="utf-8"))
    case = 'float32 2 8 2 256 256 64 64 {"training": false}'
    assert answers["2.14"][case] == answers["2.15"][case] == [1 << 20, (1 << 20) + 1024]
    assert answers["2.13"][case][1] > 10 * answers["2.14"][case][1]
