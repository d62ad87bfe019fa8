"""`vramtui ps` as scripts and people read it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base.errors import SourceFailed

run = CliRunner().invoke


def test_the_document_keeps_its_contract() -> None:
    result = run(program(), ["ps", "--demo", "--json"])
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert {"host", "taken_at", "source", "gpus", "problems"} <= set(document)
    for gpu in document["gpus"]:
        assert {"index", "uuid", "name", "state", "utilization", "power_watts", "temperature_celsius"} <= set(gpu)
        memory = gpu["memory"]
        held = sum(process["used_memory"] for process in gpu["processes"])
        assert held + memory["unattributed"] + memory["reserved"] + memory["free"] == memory["total"]
        assert all(isinstance(memory[key], int) for key in ("total", "used", "reserved", "free", "unattributed"))
    process = document["gpus"][0]["processes"][0]
    assert process["preset"] == "llama-3.1-8b-lora"
    assert isinstance(process["predicted_memory"], int)
    assert {"pid", "type", "user", "command", "used_memory", "peak_memory", "started_at", "state"} <= set(process)


def test_the_table_shows_who_holds_what() -> None:
    result = run(program(), ["ps", "--demo"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    training = next(line for line in lines if "train.py" in line)
    assert "anna" in training
    assert "meta-llama/Llama-3.1-8B --lora --batch 4" in training
    assert any("unattributed" in line and "9.1" in line for line in lines)
    assert sum("free of 140.4" in line for line in lines) == 4


def test_no_driver_is_a_sentence_and_exit_code_3(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> None:
        raise SourceFailed("NVML cannot be loaded: libnvidia-ml.so.1 was not found.", "Install the driver.")

    monkeypatch.setattr("vramtui.sources.pick.pick_source", no_driver)
    result = run(program(), ["ps"])
    assert result.exit_code == 3
    assert "libnvidia-ml.so.1 was not found. Install the driver." in result.stderr
    assert "Traceback" not in result.output


def test_a_demo_of_a_recording_is_refused(tmp_path: Path) -> None:
    result = run(program(), ["ps", "--demo", "--replay", str(tmp_path / "x.jsonl")])
    assert result.exit_code == 2
    assert "give one of them" in result.stderr


def test_a_recording_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    result = run(program(), ["ps", "--replay", str(tmp_path / "none.jsonl")])
    assert result.exit_code == 2
    assert "none.jsonl" in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
