"""The list of public scripts is whole, and its page keeps what was written around the table."""

import re
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks.scripts.data import MAKERS
from benchmarks.scripts.run import with_table
from vramtui.core.base import toml

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = toml.loads((ROOT / "benchmarks" / "scripts" / "corpus.toml").read_text(encoding="utf-8"))["script"]


def test_each_script_has_a_name_of_its_own_a_commit_and_data_that_can_be_made() -> None:
    names = [script["name"] for script in SCRIPTS]
    assert len(set(names)) == len(names) >= 40
    for script in SCRIPTS:
        assert re.fullmatch(r"[0-9a-f]{7,10}", script["commit"]), script["name"]
        assert script.get("data", "") in MAKERS, script["name"]


def test_a_table_made_anew_leaves_the_words_around_it_and_rows_that_were_not_run() -> None:
    row = {"name": "one", "repository": "a/b", "commit": "1234567", "arguments": "", "seconds": 3.2}
    seen = row | {"allocated": 2 << 20, "true_allocated": 1 << 20, "reserved": 2 << 20, "notes": []}
    page = "# Title\n\nwords\n\n| script | old |\n|---|---|\n| [kept](x) | 1 |\n| [gone](x) | 1 |\n\nafter\n"
    first = with_table(page, ["one", "kept", "never run"], {"one": seen})
    assert first.startswith("# Title\n\nwords\n\n| script |")
    assert first.endswith("| [kept](x) | 1 |\n\nafter\n")
    assert "+100.00 %" in first
    assert "gone" not in first
    assert "never run" not in first
    refused = with_table(first, ["one"], {"one": row | {"refusal": "why not"}})
    assert refused.count("| script |") == 1
    assert "why not" in refused
    assert "kept" not in refused


def test_the_page_names_scripts_of_the_list_alone() -> None:
    page = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[([^]]+)\]\(https://github.com/", page, re.MULTILINE)
    assert named
    assert set(named) <= {script["name"] for script in SCRIPTS}
