"""The list of public scripts is whole, and its page keeps what was written around the table."""

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("numpy")

from benchmarks import releases
from benchmarks.scripts.data import MAKERS
from benchmarks.scripts.page import FIRST, figures, got_worse, moved, with_rounds, with_table
from vramtui.core.base import toml
from vramtui.estimators.torch_facts.releases import HELD, release_of

ROOT = Path(__file__).resolve().parents[1]
ROUNDS = toml.loads((ROOT / "benchmarks" / "scripts" / "rounds.toml").read_text(encoding="utf-8"))
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


def test_each_row_tells_at_which_commit_of_this_project_it_was_run() -> None:
    page = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
    commits = re.findall(r"^\| (?:\d+ \| )?\[.*\| ([^|]*) \|[^|]*\|$", page, re.MULTILINE)
    assert len(commits) == len(figures(page))
    assert [one for one in commits if not re.fullmatch(r"[0-9a-f]{8}\+?", one)] == []


@pytest.mark.parametrize(
    ("allocated", "reserved", "worse"),
    [
        (100.0, 200.0, ""),
        (100.04, 200.0, ""),  # as much as the table rounds away
        (101.0, 200.0, "allocated +0.00 % to +1.00 %"),
        (100.0, 199.0, ""),  # nearer to the truth than before
        (100.0, 204.0, "reserved +1.00 % to +3.02 %"),
    ],
)
def test_a_row_got_worse_where_it_is_further_from_the_truth(allocated: float, reserved: float, worse: str) -> None:
    page = "| [one](x) | `--a` | 3 | 100.0 | +0.00 % | 200.0 | +1.00 % | 12345678 | note |\n"
    row = {"allocated": allocated * 2**20, "reserved": reserved * 2**20}
    assert got_worse(row, figures(page)["one"]) == worse


def test_a_row_without_a_truth_gets_worse_where_it_is_refused() -> None:
    page = "| [one](x) | `` | 3 | 1,100.0 |  | 1,200.0 |  | 12345678 | no truth |\n"
    page += "| [two](x) | `` | 3 |  |  |  |  | 12345678 | why |\n"
    known = figures(page)
    assert known["one"] == {"allocated": 1100.0, "reserved": 1200.0}
    assert got_worse({"refusal": "a reason"}, known["one"]) == "no longer answered: a reason"
    assert got_worse({"allocated": 1, "reserved": 1}, known["one"]) == ""
    assert got_worse({"refusal": "a reason"}, known["two"]) == ""


def test_a_figure_that_moves_without_getting_worse_is_told() -> None:
    page = "| 2 | [one](x) | 100.0 | +1.00 % | 200.0 | +1.00 % | 12345678 | note |\n"
    known = figures(page)["one"]
    nearer = {"allocated": 99 << 20, "reserved": 200 << 20}
    assert (got_worse(nearer, known), moved(nearer, known)) == ("", "allocated 100.0 to 99.0 MiB")
    assert moved({"allocated": 100 << 20, "reserved": 200 << 20}, known) == ""


def test_the_rounds_are_counted_by_their_list_and_their_rows() -> None:
    """The page says what the list says; a row that stands there stays, and a new one is counted."""
    page = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
    assert with_rounds(page, ROUNDS["script"], {}) == page
    chosen = [repository for field in ROUNDS["fields"].values() for repository in field]
    chosen += ROUNDS["further"]["repositories"] + ROUNDS["sixth_further"]["repositories"]
    for number in ("fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"):
        chosen += [repository for field in ROUNDS[f"{number}_fields"].values() for repository in field]
    assert {one["repository"] for one in ROUNDS["script"]} | set(ROUNDS["left_out"]) <= set(chosen)
    new = {"round": 3, "first": "answered", "name": "new", "repository": "a/b", "commit": "1234567"}
    row = {"allocated": 100 << 20, "reserved": 104 << 20, "true_allocated": 100 << 20, "true_reserved": 100 << 20}
    more = with_rounds(page, [*ROUNDS["script"], new], {"new": row})
    assert "| 3 | [new](https://github.com/a/b/tree/1234567) | 100.0 | +0.00 % | 104.0 | +4.00 % |  |  |\n" in more
    before, after = (
        [int(cell) for cell in re.findall(r"^\| round 3 \|(.*)\|$", text, re.MULTILINE)[0].split("|")]
        for text in (page, more)
    )
    assert after == [before[0] + 1, before[1] + 1, *before[2:5], before[5] + 1, before[6]]


def test_each_script_of_a_round_says_what_came_of_it_at_first() -> None:
    assert {one["first"] for one in ROUNDS["script"]} <= set(FIRST)


def test_the_table_by_release_is_that_of_the_recorded_rows() -> None:
    """Its counts, and what a trace says under such a release, are made from them."""
    page = (ROOT / "docs" / "scripts.md").read_text(encoding="utf-8")
    recorded = json.loads(releases.RECORDED.read_text(encoding="utf-8"))
    assert releases.with_table(page, recorded) == page
    for version, found in recorded.items():
        counts = releases.summary(found["scripts"])
        assert HELD[release_of(version)] == (counts["known"], round(counts["worst"], 4))
        assert {row["name"] for row in found["scripts"]} <= {script["name"] for script in SCRIPTS}


def test_each_rule_holds_for_the_answers_that_are_recorded_of_a_release() -> None:
    for version, found in json.loads(releases.RECORDED.read_text(encoding="utf-8")).items():
        answers = found["answers"]
        assert answers["torch"] == version
        assert [one for one in releases.rules(answers, cudnn=answers["cudnn"]) if one[2] != one[3]] == []


def test_a_truth_is_kept_for_the_same_script_of_the_same_release_alone() -> None:
    kept = releases.recorded_of("2.14.1+cpu")
    assert kept["scripts"] == releases.recorded_of("2.14.1+cu130")["scripts"]
    assert releases.recorded_of("2.11.0") == {}
    script = SCRIPTS[0]
    assert releases.identity(script | {"note": "other words", "flags": ["--share", "1"]}) == releases.identity(script)
    assert releases.identity(script | {"arguments": ["--other"]}) != releases.identity(script)


def test_a_rule_that_a_release_breaks_is_named_with_its_file() -> None:
    questions = releases.attention_calls()
    good = {
        "torch": "2.13.0+cu130",
        "blocks": {"one byte": 512, "small": 2 << 20, "middle": 20 << 20, "large": 10 << 20},
        "workspaces": {"kept": 32 << 20, "peak": 32 << 20, "fused": 0, "thread": 32 << 20, "stream": 32 << 20},
        "free block": "lowest",
        "written views": {"base": 100, "flattened": 200, "transposed": 200, "half": 0},
        "optimizers": {"fp32": [False, True]},
        "settings": [],
        "attention": [call["backend"] for call in questions],
    }
    assert [one for one in releases.rules(good, cudnn=True) if one[2] != one[3]] == []
    newer = [one for one in releases.rules(good | {"torch": "2.15.0"}, cudnn=True) if one[2] != one[3]]
    assert ("workspace, kept", "torch_facts/cublas.py", 0, 32 << 20) in newer
    assert sum(file == "torch_facts/sdpa_backend.py" for _, file, _, _ in newer) == 5
    older = [one for one in releases.rules(good | {"torch": "2.12.1"}, cudnn=True) if one[2] != one[3]]
    assert ("free block of two of one size", "torch_facts/allocator_sizes.py", "oldest", "lowest") in older
    off = {"name": "x", "allocated": 3, "reserved": 4, "true_allocated": 2, "true_reserved": 4}
    assert releases.explained(64 << 20, {"workspace, kept": 32 << 20}) == "2 x workspace, kept"
    assert releases.summary([off, {"name": "y", "refusal": "no"}])["worst"] == 0.5
    assert "no rule says it" in releases.line(off | {"why": "no rule says it"})
