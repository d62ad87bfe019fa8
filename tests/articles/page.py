"""Writes docs/articles.md: `python -m tests.articles.page > docs/articles.md`."""

import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.articles.reader import quiet_reader
from tests.articles.statements import ARTICLES, Answer, answer, statements
from tests.warm_torch import FOLDER

INTRODUCTION = """# The five articles, statement by statement

Each row is a statement of an article and the command that bears it out; `python -m tests.articles.page` runs every
command and makes this page, and a test holds it to that. *Printed* is the article's own figure, *implied* one that
follows from its code or its words; *computed* is what the command prints. Commands work in a folder with this
repository; those marked [torch] were printed with PyTorch at hand (`pip install '.[trace]'`), without which `lab`
answers most of them by formula; those marked [GPU] need a card (here a stand-in for nvidia-smi answered).

● the command prints it · ◐ in part, with its reason · ○ not borne out
"""
NEEDS = {"": "", "torch": " [torch]", "a GPU": " [GPU]"}


def _notes(answer: Answer) -> Iterator[str]:
    statement = answer.statement
    if statement.says and not statement.figure:
        yield "; ".join(f"“{words}”" for words in statement.says) + "."
    if statement.partly:
        yield statement.partly
    if statement.erratum is not None:
        by = f" (`{statement.erratum.command}`)" if statement.erratum.command else ""
        yield f"**Erratum:** {statement.erratum.text}{by}"


def summary(answers: Sequence[Answer]) -> str:
    """How many statements have each mark."""
    counts = Counter(answer.mark for answer in answers)
    marks = " · ".join(f"{mark} {counts[mark]}" for mark in ("●", "◐", "○"))
    return f"{len(answers)} statements: {marks}"


def markdown(answers: Sequence[Answer]) -> str:
    """The page of the documentation: a table for each article."""
    lines = [INTRODUCTION, f"{summary(answers)}.", ""]
    for key, title in ARTICLES.items():
        mine = [answer for answer in answers if answer.statement.id.startswith(f"{key}.")]
        lines += [
            f"## {key} · {title}",
            "",
            "| | statement | printed | implied | computed | command, and what it prints |",
        ]
        lines.append("|---|---|---:|---:|---:|---|")
        for one in mine:
            statement = one.statement
            commands = f"`{statement.command}`" + (f" over `{statement.over}`" if statement.over else "")
            cells = (f"{one.mark} {statement.id}", statement.topic, statement.printed, statement.implied, one.computed)
            last = " ".join((commands + NEEDS[statement.needs], *_notes(one)))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in (*cells, last)) + " |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, quiet_reader(Path(folder)):
        os.environ.setdefault(FOLDER, folder)
        page = markdown([answer(each) for each in statements()])
    sys.stdout.write(page)
