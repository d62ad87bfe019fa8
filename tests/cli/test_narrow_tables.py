"""Tables on a terminal of 80 columns: no row takes two lines, and what matters most stays."""

import sys

import pytest

from tests.examples import a_run
from vramtui.cli.common.console import print_table
from vramtui.cli.history.text import print_list, print_run
from vramtui.core.runs.run import StoredRun

COMMAND = "python finetune.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4 " * 2


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # nothing in bold
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_spare_columns_go_first_and_then_text_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    headings = ("NAME", "SPARE", "FIGURE", "ALSO SPARE", "LAST")
    row = ("n" * 30, "s" * 20, "12.50", "a" * 20, "l" * 60)
    print_table(headings, [row], right=(2,), spare=(3, 1))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["NAME", "SPARE", "FIGURE", "LAST"]
    print_table(headings[:3], [(row[0] * 3, row[1] * 2, row[2])], right=(2,))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2].endswith("12.50")


def test_a_pipe_gets_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "B", "C"), [("a" * 60, "b" * 60, "c")], spare=(1,))
    assert "b" * 60 in capsys.readouterr().out


def test_the_history_keeps_when_what_and_how_it_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow(monkeypatch)
    named = a_run(preset="llama-3.1-8b-lora", command=COMMAND, ending="out_of_memory", exit_code=1)
    runs = [StoredRun(id=2, run=named), StoredRun(id=1, run=a_run(preset="", command=COMMAND))]
    print_list(runs, some_kept=True)
    lines = capsys.readouterr().out.splitlines()[:4]
    assert max(map(len, lines)) <= 80
    assert {"RUN", "WHEN", "PRESET", "PREDICTED", "OBSERVED", "ENDED"} <= set(lines[0].split())
    assert "llama-3.1-8b-lora" in lines[2]
    assert "finetune.py" in lines[3], "without a preset its command says which it was"
    print_run(runs[1])
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    assert "none, so nothing was predicted" in shown
