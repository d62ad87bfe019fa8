import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CHANGES = PAGE.partition("## To change X, open Y")[2].partition("\n## ")[0]


def _exists(name: str) -> bool:
    return any((ROOT / folder / name).exists() for folder in ("", "vramtui"))


def test_each_file_of_the_page_is_there_and_thirty_changes_have_one_to_open() -> None:
    examples = PAGE.index("## Worked examples")
    named = set(
        re.findall(
            r"(?<![\w/.])((?:agent|api|app|cli|core|docs|estimators|integrations|monitor|presets|probe|pytest_plugin|records|sources|tests)/[\w/.]*)",
            PAGE[:examples],
        )
    )
    assert len(named) > 50
    assert sorted(name for name in named if not _exists(name.rstrip("."))) == []
    rows = [line.split("|")[1:3] for line in CHANGES.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) >= 30
    assert all(_exists(found[1]) for _, cell in rows if (found := re.search(r"`([^`]+)`", cell)))
