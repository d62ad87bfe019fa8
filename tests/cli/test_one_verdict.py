import json
from pathlib import Path

import pytest

from tests.commands import invoke


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="module")
def needs() -> tuple[int, float]:
    (found,) = json.loads(invoke("estimate", "tiny-gpt", "--json").stdout)["estimates"]
    return found["process"], found["error"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of_error", "verdict", "code"), [(1.1, "fits", 0), (0.6, "tight", 0), (0.0, "tight", 0), (-0.1, "does not fit", 1)]
)
def test_estimate_and_fit_agree(needs: tuple[int, float], of_error: float, verdict: str, code: int) -> None:
    memory = str(int(needs[0] * (1 + of_error * needs[1])))
    estimated = invoke("estimate", "tiny-gpt", "--memory", memory, "--json")
    fitted = invoke("fit", "tiny-gpt", "--memory", memory, "--json")
    assert (estimated.exit_code, fitted.exit_code) == (code, code)
    assert json.loads(estimated.stdout)["estimates"][0]["verdict"] == verdict
    assert json.loads(fitted.stdout)["verdict"] == verdict
    assert ("vramtui: tight: needs " in estimated.stderr) == (verdict == "tight")
    assert ("vramtui: tight: needs " in fitted.stderr) == (verdict == "tight")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_the_answer_is_the_first_line_and_80_columns_are_enough(command: str) -> None:
    done = invoke(command, "llama-3.1-8b-full", "--gpu", "h100", "--set", "run.batch_size=8")
    assert done.exit_code == 1
    assert done.stdout.startswith("✗ does not fit H100: needs ")
    assert "short" in done.stdout.splitlines()[0]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "ARITHMETIC" not in done.stdout


@pytest.mark.parametrize(("typed", "name"), [("4090", "RTX4090"), ("h100", "H100"), ("1080 ti", "GTX1080Ti")])
def test_cards_as_people_call_them(typed: str, name: str) -> None:
    assert json.loads(invoke("estimate", "tiny-gpt", "--gpu", typed, "--json").stdout)["device"]["name"] == name


def test_keys_without_their_table_fewer_gpus_and_the_arithmetic_on_demand() -> None:
    short = invoke("estimate", "gpt2-124m", "--set", "batch_size=3", "--set", "zero_stage=2", "--json")
    long = invoke("estimate", "gpt2-124m", "--set", "run.batch_size=3", "--set", "parallel.zero_stage=2", "--json")
    assert short.exit_code == 0, short.stderr
    assert short.stdout == long.stdout
    assert "batch_size is 0; it must be at least 1" in invoke("estimate", "gpt2-124m", "--set", "batch_size=0").stderr
    fewer = invoke("fit", "llama-3.1-70b-fsdp", "--gpu", "H100", "--gpus", "8", "--json")
    same = invoke("fit", "llama-3.1-70b-fsdp", "--gpu", "H100", "--set", "parallel.data=8", "--json")
    assert json.loads(fewer.stdout)["process"] == json.loads(same.stdout)["process"]
    assert "is for 64 GPUs; calculated for 8 (--set parallel.data=8)" in fewer.stderr
    never = invoke("fit", "llama-3.1-70b-fsdp", "--gpu", "H100", "--gpus", "8", "--set", "parallel.tensor=16")
    assert never.exit_code == 2
    assert "8 is not a multiple of" in never.stderr
    for option in ("-v", "--explain"):
        assert "BYTES" in invoke("estimate", "tiny-gpt", option).stdout
