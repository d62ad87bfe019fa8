import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.commands import invoke
from tests.golden_workloads import model as named
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.workload import Parallel, Run, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets import bundled_folder

Table = dict[str, Any]
SIMPLE = {"kind": "infer"}


@for_each(rows(__file__, "cases"))
def test_one_sentence(model: str | Table, changes: Table, run: Table, parallel: Table, gpu: str, said: str) -> None:
    table = named(model) if isinstance(model, str) else msgspec.convert({"model": model, "run": SIMPLE}, Workload).model
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
    changed = {key: None if value == "none" else value for key, value in fields.items()}
    workload = Workload(
        model=msgspec.structs.replace(table, **changed),
        run=msgspec.convert({"kind": "infer"} | run, Run),
        parallel=msgspec.convert(parallel, Parallel) if parallel else None,
    )
    with pytest.raises(UserError) as refused:
        ANALYTIC.estimate(workload, card(gpu or "H100"))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@for_each(rows(__file__, "contradictions_end_with_2"))
def test_contradictions_end_with_2(preset: str, settings: list[str], sentence: str) -> None:
    chosen = [part for setting in settings for part in ("--set", setting)]
    done = invoke("estimate", preset, *chosen)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert sentence in done.stderr


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))


def test_servers_tell_tokens_and_sequences_or_what_they_need(tmp_path: Path) -> None:
    arguments = ["estimate", "llama-3.1-8b-serve", "--gpu", "H100"]
    done = invoke(*arguments, "--json")
    (estimate,) = json.loads(done.stdout)["estimates"]
    pool = next(part for part in estimate["parts"] if part["name"] == "kv cache")
    tokens = pool["bytes"] // (128 * 1024)
    room = f"room for {tokens:,} tokens of keys and values: {tokens / 131072:.2f} sequences of 131,072 tokens at once"
    assert any(note.startswith(room) for note in estimate["assumptions"])
    assert estimate["fits"]
    assert room[:40] in invoke(*arguments, "-v").stdout
    done = invoke("estimate", "llama-3.1-70b-serve", "--set", "parallel.tensor=1")
    assert done.exit_code == 1
    assert "which leaves nothing for keys and values" in done.stderr
    assert done.stderr.count("\n") == 1
    text = (bundled_folder() / "llama" / "llama-3.1-70b-serve.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("tensor = 4", "tensor = 1"))
    done = invoke("presets", "check", str(mine))
    assert done.exit_code == 0, done.stdout + done.stderr
    mine.write_text(text.replace("tensor = 4", "tensor = 7"))
    assert invoke("presets", "check", str(mine)).exit_code == 2
