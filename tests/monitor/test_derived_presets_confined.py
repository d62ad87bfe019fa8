import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app import scenes
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.derived_presets import ConfinedDerive, ConfinedError, DerivedPresets
from vramtui.monitor.session import MonitorSession

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
}  # fmt: skip
WAITS = "import time; time.sleep(60)"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-c", WAITS, "--model_name_or_path", str(tmp_path)]
    process = subprocess.Popen(command)
    yield process.pid, " ".join(command)
    process.kill()
    process.wait()


def write(folder: Path, **changed: object) -> None:
    (folder / "config.json").write_text(json.dumps(LLAMA | changed))


def test_a_model_is_found_as_it_would_be_here_and_impossible_sizes_are_none(
    running: tuple[int, str], tmp_path: Path
) -> None:
    write(tmp_path)
    confined = ConfinedDerive()
    try:
        found = confined(*running)
        assert not isinstance(found, str)
        assert isinstance(found.preset.model, TransformerModel)
        assert found.preset.model.num_hidden_layers == 4
        assert confined(running[0], "sleep 60 \udcff") == ""
    finally:
        confined.close()
    write(tmp_path, num_hidden_layers=10**12)
    confined = ConfinedDerive()
    try:
        assert confined(*running) == "its model's file names no known model"
    finally:
        confined.close()


def test_a_child_starts_for_a_nameless_command_only_by_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a child"))

    def look_for(command: str) -> None:
        gpu = scenes.gpu(0, scenes.process(os.getpid(), 1, command))
        assert DerivedPresets(wait=True).with_derived(scenes.sample(gpu), {}, {}) == {}

    look_for("python train.py --rank=0")
    with pytest.raises(pytest.fail.Exception):  # nanoGPT's script names GPT-2
        look_for("python train_gpt2.py")
    write(tmp_path)
    with pytest.raises(pytest.fail.Exception):
        look_for("python train.py --rank=0")


def test_one_that_takes_too_long_is_a_sentence(running: tuple[int, str], tmp_path: Path) -> None:
    write(tmp_path)
    confined = ConfinedDerive(patience=0.0)
    with pytest.raises(ConfinedError, match=rf"what pid {running[0]} names takes more than 0 s"):
        confined(*running)
    again = ConfinedDerive()
    try:
        assert again(*running) is not None
    finally:
        again.close()


def test_a_session_tells_what_was_not_estimated() -> None:
    def derive(pid: int, command: str) -> PresetFile | None:
        del command
        raise ConfinedError(f"its model is not estimated: what pid {pid} names takes more than 20 s")

    session = MonitorSession(derived=DerivedPresets(derive, wait=True))
    session.is_matching = True
    session.ingest(scenes.usual())
    assert {problem.hint for problem in session.sample.problems if "not estimated" in problem.message} == {
        "m gives it a preset."
    }
