"""Tables on a terminal of 80 columns: no row takes two lines, and what matters most stays."""

import sys
from io import StringIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.examples import a_run
from tests.properties import examples
from vramtui.cli.common.console import print_table
from vramtui.cli.history import print_list, print_run
from vramtui.core.runs.run import StoredRun

COMMAND = "python finetune.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 4 " * 2


def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")  # nothing in bold
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_spare_columns_go_first_but_not_in_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_table(("A", "B", "C"), [("a" * 60, "b" * 60, "c")], spare=(1,))
    assert "b" * 60 in capsys.readouterr().out
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


def test_the_history_keeps_how_it_ended(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert "no prediction: no preset" in shown


CELLS = st.text(st.sampled_from("abc é世界…-1"), max_size=24).map(str.strip)


@examples(60)
@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4), st.sampled_from([(), (1,), (0, 2)]))
def test_a_table_is_the_one_that_rich_draws(rows: list[tuple[str, str, str]], right: tuple[int, ...]) -> None:
    headings = ("FIRST", "SECOND", "THIRD")
    made, drawn = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", made)
        print_table(headings, rows, right=right)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="right" if at in right else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    Console(file=drawn, width=400, highlight=False).print(table)
    # But for what fills up the last column, of which a pipe has no need.
    expected = [line.rstrip() for line in drawn.getvalue().splitlines()]
    assert made.getvalue().splitlines() == expected
