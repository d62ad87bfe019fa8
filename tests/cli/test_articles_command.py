"""`vramtui articles`: each statement computed at this moment, and the page of the documentation."""

import json
import shlex
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from vramtui.cli.articles.statements import ARTICLES, answer, statements
from vramtui.cli.articles.text import markdown
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import ARTICLE_CARD, card
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
    statement = next(one for one in statements("000") if one.value)
    assert answer(statement, LIBRARY, card(ARTICLE_CARD)).mark == "●"
    off = msgspec.structs.replace(statement, value=(statement.value or 0) + 512)
    assert answer(off, LIBRARY, card(ARTICLE_CARD)).mark == "○"


def test_the_page_of_the_documentation_is_what_the_command_prints() -> None:
    page = (ROOT / "docs/articles.md").read_text(encoding="utf-8")
    assert page == markdown(tuple(ANSWERS.values())), "`vramtui articles --markdown > docs/articles.md` makes it anew"


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


def test_json_and_one_article() -> None:
    document = json.loads(CliRunner().invoke(program(), ["articles", "003", "--json"]).stdout)
    assert document["schema"] == 1
    total = next(row for row in document["statements"] if row["id"] == "003.7")
    assert total["printed"] == "65.981 GiB"
    assert total["computed"] == 70_846_191_104
    assert all(row["id"].startswith("003.") for row in document["statements"])


def test_an_article_that_is_not_there() -> None:
    with pytest.raises(UserError, match="there are: 000"):
        statements("7")
    done = CliRunner().invoke(program(), ["articles", "7"])
    assert done.exit_code == 2
