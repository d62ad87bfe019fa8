import sys
from pathlib import Path

import pytest

from tests.faults.combinations import CALLS, CODES, GIB, HANGS, RUNNING, WHEN, Combination, combinations, used_at
from tests.faults.rules import bench
from tests.installed.terminal import Terminal
from tests.stub.build import build

EVERY = 29  # which shares no factor with the ways and the times, so that all of them are among the sample
SAMPLE = list(combinations())[::EVERY]


@pytest.mark.parametrize("call", CALLS)
def test_no_rule_is_broken(call: str, tmp_path: Path) -> None:
    cases = [case for case in SAMPLE if case.call == call]
    with bench(tmp_path) as judge_of:
        judged = {case.name: judge_of.judge(case) for case in cases}
    assert {name: one.broken for name, one in judged.items() if one.broken} == {}
    assert any(one.met for one in judged.values()), "nobody makes this call, so its faults prove nothing"


@pytest.mark.slow
@pytest.mark.parametrize("what", [HANGS, "garbage"])
def test_in_the_installed_program(what: str, tmp_path: Path) -> None:
    case, state = Combination("nvmlDeviceGetMemoryInfo_v2", what, RUNNING), tmp_path / "world"
    case.world(broken=False, tick=1).write(state)
    environment: dict[str, str | None] = {
        "LD_LIBRARY_PATH": str(build()),
        "VRAMTUI_STUB_STATE": str(state),
        "VRAMTUI_CONFIG_DIR": str(tmp_path / "config"),
        "VRAMTUI_DATA_DIR": str(tmp_path / "data"),
        "PATH": "",  # no nvidia-smi of this machine's
    }
    program = str(Path(sys.executable).with_name("vramtui"))
    with Terminal([program, "--interval", "0.2"], env=environment) as terminal:
        terminal.wait_for("vramtui", "NVIDIA B")
        for tick in (40, 50):
            case.world(broken=True, tick=tick).write(state)
            terminal.wait_for(f"{used_at(tick) / GIB:.1f}/80.0")
        terminal.wait(lambda text: "quit" in text.lower(), "the key bar")
        terminal.send("q")
        assert (terminal.ended(), terminal.left_behind()) == (0, [])
        assert b"Traceback" not in terminal.sent


def test_the_sample_has_every_way_and_every_time() -> None:
    assert {case.when for case in SAMPLE} == {*WHEN}
    assert {case.what for case in SAMPLE} >= {*CODES, "hangs", "slow", "absurd", "short", "garbage"}
    assert len(list(combinations())) > 2000
