"""Writes docs/articles.md: `python -m tests.articles.page > docs/articles.md`."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.articles.statements import ARTICLE_CARD, ARTICLES, Answer, answer, statements
from vramtui.core.estimate.devices import card
from vramtui.presets.library import PresetLibrary

INTRODUCTION = f"""# The five articles, statement by statement

This page is what `python -m tests.articles.page` prints; a test holds it to that. Each figure is computed from a preset
(on {ARTICLE_CARD}, a card before Hopper, as the articles' workspaces are); none is stored as a result.

● the same figure, or shown by the command · ◐ in part, with its reason · ○ not reproduced
"""


def figure(answer: Answer) -> str:
    """The computed figure, in the unit of what is printed beside it; empty where there is none."""
    value, statement = answer.computed, answer.statement
    if value is None:
        return ""
    if statement.unit != "bytes":
        return f"{value:.2g} %" if statement.printed.endswith("%") and value > 1 else _short(value, statement.printed)
    for unit, size in (("GiB", 1 << 30), ("GB", 10**9), ("MB", 10**6)):
        if statement.printed.endswith(f" {unit}"):
            return f"{value / size:,.3f} {unit}" if unit == "GiB" else f"{value / size:,.2f} {unit}"
    return f"{round(value):,}"


def _short(value: float, printed: str) -> str:
    return f"{value * 100:.1f} %" if printed.endswith("%") else f"{value:.3g}"


def _notes(answer: Answer) -> Iterator[str]:
    if answer.statement.partly and answer.mark == "◐":
        yield answer.statement.partly
    if answer.statement.erratum:
        yield f"Erratum: {answer.statement.erratum}"


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
        lines += [f"## {key} · {title}", "", "| | statement | printed | computed | command, and where they differ |"]
        lines.append("|---|---|---:|---:|---|")
        for one in mine:
            statement = one.statement
            notes = " ".join(_notes(one))
            row = (f"{one.mark} {statement.id}", statement.topic, statement.printed, figure(one))
            lines.append(f"| {' | '.join(row)} | `{one.command}`{f'. {notes}' if notes else ''} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    presets = PresetLibrary()
    sys.stdout.write(markdown(tuple(answer(each, presets, card(ARTICLE_CARD)) for each in statements())))
