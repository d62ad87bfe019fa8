"""The documentation's pages: made from the code, each in the navigation, no link into nothing."""

import re
import runpy
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped] # carries no types

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#|mailto:)([^)#\s]+)")
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md"))
REPOSITORY = "https://github.com/vramtui/vramtui/"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = runpy.run_path(str(ROOT / "docs" / "build.py"))
    pages: Path = tmp_path_factory.mktemp("site") / "docs"
    program["main"].__globals__["PAGES"] = pages
    program["main"]()
    return pages


def test_every_page_is_in_the_navigation(built: Path) -> None:
    named = set(re.findall(r"[\w/.-]+\.md", yaml.safe_dump(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])))
    assert named == {str(path.relative_to(built)) for path in built.rglob("*.md")}


def test_no_link_leads_into_nothing(built: Path) -> None:
    dead = [
        f"{path.relative_to(built)}: {link}"
        for path in built.rglob("*.md")
        for link in LINK.findall(path.read_text(encoding="utf-8"))
        if not (path.parent / link).exists()
    ]
    assert dead == []


def test_the_readmes_links_are_of_files_that_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert LINK.findall(text) == []
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com") + "main/"
    files = [
        link.partition(f"{REPOSITORY}blob/main/")[2] or link.partition(raw)[2]
        for link in re.findall(r"\]\(([^)]+)\)", text)
    ]
    assert files
    assert [file for file in files if file and not (ROOT / file).exists()] == []


def test_every_part_has_its_source(built: Path) -> None:
    rows = [line for line in (built / "parts.md").read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    assert [row for row in rows if len(row.split(" | ")) != 4 or "|  |" in row] == []
