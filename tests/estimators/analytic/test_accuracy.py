"""The errors that are promised, and the page with their table."""

from pathlib import Path

import pytest

from tests.recorded.accuracy_errors import ANALYTIC, FAMILIES, Measured, measure, spread_of
from tests.recorded.accuracy_figures import as_json, lines
from tests.recorded.accuracy_page import markdown, with_table

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def measured() -> list[Measured]:
    return measure()


@pytest.mark.slow
def test_the_readme_tells_what_is_measured(measured: list[Measured]) -> None:
    text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert with_table(text, markdown(measured)) == text, "run: python benchmarks/accuracy.py --update-page"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.title)
def test_the_promised_errors(measured: list[Measured], family: object) -> None:
    title = getattr(family, "title", None)
    spread = spread_of(measured, ANALYTIC, title)
    assert spread is not None
    assert spread.median <= 0.03
    assert abs(spread.worst) <= 0.08


def test_every_recorded_run_is_measured(measured: list[Measured]) -> None:
    recorded = {(path.stem, path.parent.name) for path in (ROOT / "tests/golden/training").rglob("*.json")}
    assert {(row.name, row.card.lower()) for row in measured} == recorded


def test_the_printed_table_has_a_line_for_each(measured: list[Measured]) -> None:
    text = "\n".join(lines(measured))
    for row in measured:
        assert any(line.startswith(f"{row.name} ") and f" {row.card} " in line for line in text.splitlines())
    assert "rules:eleutherai" in text


def test_numbers_for_programs(measured: list[Measured]) -> None:
    told = as_json(measured)
    first = told["workloads"][0]  # type: ignore[index] # a list, as the document has it
    assert first["methods"]["analytic"]["peak_allocated"] == measured[0].allocated["analytic"]
    assert first["true_peak_allocated"] == measured[0].true_allocated


def test_a_readme_without_the_place_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a line"):
        with_table("no markers", "table")
    assert (
        with_table("a <!-- accuracy -->old<!-- /accuracy --> b", "new")
        == "a <!-- accuracy -->\nnew\n<!-- /accuracy --> b"
    )
