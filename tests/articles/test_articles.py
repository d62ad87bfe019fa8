import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.articles.page import markdown
from tests.articles.reader import ROOT, quiet_reader
from tests.articles.statements import ARTICLES, Statement, answer, output, statements

STATEMENTS = statements()
TORCH = pytest.mark.torch
DRY_RUN = next(one.command for one in STATEMENTS if one.needs == "torch")
ROWS = [pytest.param(one, id=one.id, marks=TORCH if one.needs == "torch" else ()) for one in STATEMENTS]
ERRATA = [row for one, row in zip(STATEMENTS, ROWS, strict=True) if one.erratum is not None]


@pytest.fixture(scope="module", autouse=True)
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with quiet_reader(tmp_path_factory.mktemp("reader")):
        yield


def test_each_statement_stands_once_and_its_command_does_not_contain_the_evidence() -> None:
    ids = [one.id for one in STATEMENTS]
    assert len(ids) == len(set(ids)) >= 180
    assert {one.partition(".")[0] for one in ids} == set(ARTICLES)
    for one in STATEMENTS:
        assert one.says or one.value is not None, one.id
        assert not (one.printed and one.implied), one.id
        assert not one.value or one.figure, one.id
        assert [words for words in one.says if words in f"{one.command} {one.over}"] == [], one.id


@pytest.mark.parametrize("statement", ERRATA)
def test_each_figure_of_an_erratum_is_computed(statement: Statement) -> None:
    text, command = statement.erratum.text, statement.erratum.command or statement.command
    seen = f"{output(statement.command)} {output(command)} {command} {statement.printed} {statement.implied}"
    figures = [figure.replace(",", "") for figure in re.findall(r"\d[\d,]*\.?\d+", text)]
    large = sorted(map(float, figures))[-2:]
    if len(large) == 2:
        seen += f" {100 * large[0] / large[1]:.3f}"
    long = [figure for figure in figures if len(figure.replace(".", "")) > 2]
    assert [figure for figure in long if figure not in seen.replace(",", "")] == []


@pytest.mark.parametrize("statement", ROWS)
def test_the_command_prints_what_is_stated(statement: Statement) -> None:
    assert answer(statement).missing == ()


@pytest.mark.torch
def test_nine_of_ten_are_shown_or_explained_and_the_others_have_a_reason() -> None:
    answers = [answer(one) for one in STATEMENTS]
    assert [one.statement.id for one in answers if one.mark == "○"] == []
    assert sum(one.mark in {"●", "◌"} for one in answers) / len(answers) >= 0.9


@pytest.mark.torch
def test_the_page_of_the_documentation_is_what_the_commands_printed() -> None:
    page = (ROOT / "docs/articles.md").read_text(encoding="utf-8")
    made = markdown([answer(one) for one in STATEMENTS])
    assert page == made, "`python -m tests.articles.page > docs/articles.md` makes it anew"


# Changes of the program, each as Python that runs at the start of every process.
CHANGES = {
    "blocks have 4,096 bytes": "import vramtui.estimators.torch_facts.allocator_sizes as m; m.MIN_BLOCK = 4096\n",
    "cuBLAS has no workspace": (
        "import vramtui.estimators.torch_facts.cublas as module\nmodule.WORKSPACE = module.LARGE_WORKSPACE = 0\n"
    ),
    "SGD and AdamW keep one state more": (
        "import vramtui.estimators.analytic.optimizers as module\n"
        "module._ELEMENTWISE['sgd'] = module._ELEMENTWISE['momentum']\n"
        "module._ELEMENTWISE['adamw'] = module._ELEMENTWISE['amsgrad']\n"
    ),
    "a cache has twice the heads": (
        "from vramtui.core.schema.models import TransformerModel as Model\n"
        "heads = Model.kv_heads\n"
        "Model.kv_heads = property(lambda model: 2 * heads.__get__(model))\n"
    ),
}


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_program_is_noticed(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Engine fake, because it computes blocks and workspaces itself; engine cuda asks PyTorch."""
    (tmp_path / "sitecustomize.py").write_text(CHANGES[change])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("VRAMTUI_ENGINE", "fake")
    asked = """
import sys
from tests.articles.statements import answer, statements
for row in statements():
    if row.needs != "a GPU" and ("vramtui estimate" in row.command or row.command == sys.argv[1]):
        try:
            shown = answer(row).mark != "○"
        except AssertionError:  # the changed program refuses the command
            shown = False
        print("" if shown else row.id)
"""
    dry_run = DRY_RUN if "estimators.torch_facts" in CHANGES[change] else ""
    command = [sys.executable, "-c", asked, dry_run]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(done.stdout.split()) >= 10, done.stdout
