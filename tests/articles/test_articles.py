"""The statements of five articles on GPU memory, each computed at this moment, and their page of the documentation."""

import shlex
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.articles.page import markdown
from tests.articles.statements import ARTICLE_CARD, ARTICLES, answer, statements
from vramtui.cli.main import program
from vramtui.core.estimate.devices import card
from vramtui.estimators.lab.catalogue import EXPERIMENTS
from vramtui.presets.library import PresetLibrary

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests/golden/real/forward_memory_snapshot_150.json.gz"
LIBRARY = PresetLibrary()
ANSWERS = {one.id: answer(one, LIBRARY, card(ARTICLE_CARD)) for one in statements()}
COMMANDS = sorted({one.command for one in ANSWERS.values()})


def test_each_statement_stands_once_and_each_article_has_some() -> None:
    found = [one.id for one in statements()]
    assert len(found) == len(set(found)) > 100
    assert {one.partition(".")[0] for one in found} == set(ARTICLES)


def test_none_is_missing_and_each_that_is_not_whole_has_its_reason() -> None:
    assert [one.statement.id for one in ANSWERS.values() if one.mark == "○"] == []
    assert all(one.statement.partly for one in ANSWERS.values() if one.mark == "◐")
    assert sum(one.mark == "●" for one in ANSWERS.values()) / len(ANSWERS) >= 0.95


def test_a_reason_stands_only_where_something_is_missing() -> None:
    assert [one.statement.id for one in ANSWERS.values() if one.mark == "●" and one.statement.partly] == []


def test_a_figure_that_is_off_is_no_match() -> None:
    statement = next(one for one in statements() if one.value)
    assert answer(statement, LIBRARY, card(ARTICLE_CARD)).mark == "●"
    off = msgspec.structs.replace(statement, value=(statement.value or 0) + 512)
    assert answer(off, LIBRARY, card(ARTICLE_CARD)).mark == "○"


def test_the_page_of_the_documentation_is_what_the_script_prints() -> None:
    page = (ROOT / "docs/articles.md").read_text(encoding="utf-8")
    assert page == markdown(tuple(ANSWERS.values())), "`python -m tests.articles.page > docs/articles.md` makes it anew"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_beside_a_statement_runs(command: str) -> None:
    name, verb, *arguments = shlex.split(command)
    assert name == "vramtui"
    if verb == "lab":
        assert {*EXPERIMENTS, "all"} >= {one for one in arguments if not one.startswith("-")}
        return
    arguments = ["--help"] if verb == "trace" else ["--demo"] if verb == "ps" else arguments
    arguments = [str(RECORDED) if one == "SNAPSHOT" else one for one in arguments]
    done = CliRunner().invoke(program(), [verb, *arguments])
    assert done.exit_code in {0, 1}, done.output
