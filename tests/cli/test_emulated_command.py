"""The command that a trace prints where an emulated card knows a script's memory better."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from vramtui.cli.run.emulated import parse_cards
from vramtui.cli.trace.emulated_command import better_emulated, emulated_command, way_out
from vramtui.core.estimate.devices import CARDS, card
from vramtui.estimators.traced.process.interpreters import Interpreter
from vramtui.estimators.traced.process.results import TraceRequest

CPU = Interpreter(path=Path("/opt/job/bin/python3"), why="named", torch="2.13.0+cpu")
CUDA = Interpreter(path=Path("/opt/job/bin/python3"), why="named", torch="2.13.0+cu130", cuda="13.0")


def asked(**changes: Any) -> TraceRequest:
    return TraceRequest(**{"path": "train.py", "device": card("4090"), **changes})


def test_it_is_the_script_as_it_was_traced() -> None:
    request = asked(arguments=("--name", "a b"), steps=2, alloc_conf="expandable_segments:True", keep_files=True)
    words = shlex.split(emulated_command(request, CUDA))
    assert words == [
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        *("vramtui", "run", "--on", "RTX4090", "--steps", "2", "--keep-files"),
        *("--", "/opt/job/bin/python3", "train.py", "--name", "a b"),
    ]


def test_ranks_run_on_as_many_cards() -> None:
    assert emulated_command(asked(ranks=8), CPU).endswith(
        "--on 8xRTX4090 --steps 3 -- python -m torch.distributed.run --nproc-per-node 8 train.py"
    )


@pytest.mark.parametrize("changes", [{"path": ""}, {"function": "main"}])
def test_what_is_no_whole_script_has_none(changes: dict[str, object]) -> None:
    command = emulated_command(asked(**changes), CUDA)
    assert (command, better_emulated(command, ("compiled code",), CUDA), way_out(command, CUDA)) == ("", "", "")


def test_every_card_is_one_that_the_run_takes() -> None:
    for name in CARDS:
        words = shlex.split(emulated_command(asked(device=card(name), ranks=2), CUDA))
        device, count = parse_cards(words[words.index("--on") + 1])
        assert (device, count) == (card(name), 2)


def test_pytorchs_cuda_build_is_asked_for_where_the_trace_had_none() -> None:
    command = emulated_command(asked(), CPU)
    note = better_emulated(command, ("compiled code", "TorchScript"), CPU)
    first, last = note.splitlines()
    assert first.startswith("note: an emulated card, with PyTorch's CUDA build in the job's environment, knows more of")
    assert first.endswith(" compiled code, TorchScript:")
    assert last == "  vramtui run --on RTX4090 --steps 3 -- python train.py"
    assert "CUDA build" not in better_emulated(command, ("compiled code",), CUDA)
    assert not better_emulated(command, (), CUDA)
