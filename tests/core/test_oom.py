"""Out-of-memory messages as people post them, and what each is a case of."""

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.tables import for_each, rows
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom

MESSAGES: list[dict[str, Any]] = rows(__file__, "message")
TEXTS: dict[str, str] = {row["name"]: row["text"] for row in MESSAGES if "name" in row}
LONG = ("one_sequence", "at_the_start", "no_blocks", "sglang", "llama_cpp", "xla_parts", "bfc", "mps", "async")


def plain(value: object) -> object:
    """A field as the table has it: unknown is "none", and keys are text."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    return "none" if value is None else list(value) if isinstance(value, tuple) else value


@for_each(MESSAGES)
def test_each_message_is_read_and_explained(row: dict[str, Any]) -> None:
    report = read_oom(f"step 3: loss 2.1\n{row['text']}\nterminating\n")
    assert (report.program, report.cause, report.asked) == (row["program"], row["cause"], row["asked"] or None)
    wanted = row.get("report", {})
    assert {name: plain(getattr(report, name)) for name in wanted} == wanted
    sentences = list(sentences_of(report))
    assert sentences[0].startswith(row.get("begins", ""))
    told = " ".join(sentences)
    assert [words for words in row.get("said", ()) if words not in told] == []
    assert [words for words in row.get("never", ()) if words in told] == []


@for_each(rows(__file__, "refused"))
def test_other_text_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_oom(text)


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    for around in (f"{text} Tried to allocate {text} MiB", f"Tried to allocate 1.2.3 GiB {text}", text):
        with suppress(UserError):
            list(sentences_of(read_oom(around)))


@pytest.mark.parametrize("digits", ["0", "9" * 5000, "1.2.3", "1e999"])
def test_no_number_breaks_it(digits: str) -> None:
    for name in ("limited", "old", "vllm", *LONG[:-1]):
        message = TEXTS[name]
        for place in re.finditer(r"\d+(?:\.\d+)?", message):
            with suppress(UserError):
                assert list(sentences_of(read_oom(message[: place.start()] + digits + message[place.end() :])))
    for name in ("tensor", "cupy", "triton", "host", "numpy", "kernel"):
        with suppress(UserError):
            assert list(sentences_of(read_oom(re.sub(r"\d+", digits, TEXTS[name]))))


@given(st.sampled_from(LONG).map(TEXTS.__getitem__), st.data())
def test_no_cut_or_repeated_message_breaks_it(message: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(message)))
    end = data.draw(st.integers(begin, len(message)))
    digits = data.draw(st.sampled_from(["0", "9" * 400, "-1", ".", "1e9"]))
    with suppress(UserError):
        sentences = list(sentences_of(read_oom(f"{message[begin:end]}{digits}{message}{message[begin:end]}")))
        assert sentences
        assert all(sentence.strip() and "None" not in sentence for sentence in sentences)


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{TEXTS['room']}\n", encoding="utf-8")
    runner = CliRunner(env={"COLUMNS": "200"})
    done = runner.invoke(program(), ["oom", str(log)])
    assert done.exit_code == 0
    assert done.stdout.startswith("Not enough memory: 22.00 MiB was requested, 11.06 MiB was free")
    assert "requested at /srv/anna/train.py:57" in done.stdout
    pasted = runner.invoke(program(), ["oom", "--json"], input=TEXTS["neighbour"])
    assert json.loads(pasted.stdout)["cause"] == "another process"
    advised = runner.invoke(program(), ["oom", str(log), "--preset", "llama-3.2-3b-lora"])
    assert "What would have fitted: " in advised.stdout
    assert "--set " in advised.stdout
    assert runner.invoke(program(), ["oom", str(tmp_path / "none.log")]).exit_code == 2
    told = runner.invoke(program(), ["oom", "--preset", "llama-3.2-3b-lora"], input=TEXTS["kernel"])
    killed = "Not GPU memory: the host's memory ran out and the kernel ended python (pid 4211), which held 50.00 GiB"
    assert told.stdout.startswith(killed)
    assert "--preset" not in told.stdout
    assert "What would have fitted" not in told.stdout
