"""Writes docs/articles.md: `python -m tests.articles.page > docs/articles.md`."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.articles.reader import quiet_reader
from tests.articles.statements import ARTICLES, Answer, answer, statements
from tests.warm_torch import FOLDER

INTRODUCTION = """# Five articles on GPU memory, checked

Errors of the articles come first, then every statement with a command whose output shows it. `python -m
tests.articles.page` runs all commands and writes this page; a test compares them. Run the commands in this repository's
folder. Commands marked [torch] need PyTorch, those marked [GPU] a GPU.

- *printed*: the article's own figure; *implied*: follows from its code, charts or words; *found*: by the program
- ● shown · ◐ shown in part, with the reason · ◌ explained by a help page, not shown · ○ not shown
"""
NEEDS = {"": "", "torch": " [torch]", "a GPU": " [GPU]"}


def summary(answers: Sequence[Answer]) -> str:
    counts = Counter(answer.mark for answer in answers)
    marks = " · ".join(f"{mark} {counts[mark]}" for mark in ("●", "◐", "◌", "○"))
    return f"{len(answers)} statements: {marks}"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown(answers: Sequence[Answer]) -> str:
    """The page of the documentation: the errata, then a table for each article."""
    lines = [INTRODUCTION, f"{summary(answers)}.", "", "## Errors in the articles", ""]
    lines += ["| | the article says | correct | shown by |", "|---|---|---|---|"]
    for one in answers:
        statement, erratum = one.statement, one.statement.erratum
        if erratum is not None:
            figure = statement.printed or statement.implied
            says = f"{statement.topic}: {figure}" if figure else statement.topic
            lines.append(_row(statement.id, says, erratum.text, f"`{erratum.command or statement.command}`"))
    for key, title in ARTICLES.items():
        lines += ["", f"## {key}: {title}", "", "| | statement | printed | implied | found | shown by |"]
        lines.append("|---|---|---:|---:|---:|---|")
        for one in answers:
            statement = one.statement
            if not statement.id.startswith(f"{key}."):
                continue
            words = "" if statement.figure else "; ".join(f"“{words}”" for words in statement.says)
            command = f"`{statement.command}`{NEEDS[statement.needs]}"
            if statement.over not in {"", statement.command}:
                command += f" divided by `{statement.over}`"
            shown = " ".join(part for part in (command, words, statement.partly) if part)
            numbers = (statement.printed, statement.implied, one.computed or statement.found)
            lines.append(_row(f"{one.mark} {statement.id}", statement.topic, *numbers, shown))
    return "\n".join((*lines, ""))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, quiet_reader(Path(folder)):
        os.environ.setdefault(FOLDER, folder)
        page = markdown([answer(each) for each in statements()])
    sys.stdout.write(page)
