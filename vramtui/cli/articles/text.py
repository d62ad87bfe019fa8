"""The statements of the articles for people, as JSON, and as a page of the documentation."""

import shutil
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from vramtui.cli.articles.statements import ARTICLES, Answer
from vramtui.core.estimate.devices import ARTICLE_CARD

INTRODUCTION = f"""# The five articles, statement by statement

This page is what `vramtui articles --markdown` prints; a test holds it to that. Each figure is computed from a preset
(on {ARTICLE_CARD}, a card before Hopper, as the articles' workspaces are); none is stored as a result.

● the same figure, or shown by the command · ◐ in part, with its reason · ○ not reproduced
"""
NARROWEST, WIDEST = 40, 120


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


def plain(answers: Sequence[Answer]) -> str:
    """A paragraph for each statement, as wide as the terminal."""
    width = min(WIDEST, max(NARROWEST, shutil.get_terminal_size().columns))
    lines = []
    for key, title in ARTICLES.items():
        mine = [answer for answer in answers if answer.statement.id.startswith(f"{key}.")]
        if not mine:
            continue
        lines += [f"{key}  {title}", ""]
        for answer in mine:
            lines += _paragraph(answer, width)
        lines.append("")
    return "\n".join([*lines, summary(answers), ""])


def _paragraph(answer: Answer, width: int) -> list[str]:
    statement = answer.statement
    head = f"{answer.mark} {statement.id:<7}{statement.topic}"
    lines = textwrap.wrap(head, width, subsequent_indent=" " * 9)
    if statement.printed:
        lines.append(f"{'':9}printed {statement.printed}, computed {figure(answer)}")
    indent = " " * 9
    wrapped = (textwrap.wrap(note, width, initial_indent=indent, subsequent_indent=indent) for note in _notes(answer))
    return [*lines, *(line for note in wrapped for line in note), f"{indent}{answer.command}"]


def markdown(answers: Sequence[Answer]) -> str:
    """The page of the documentation: a table for each article."""
    lines = [INTRODUCTION, f"{summary(answers)}.", ""]
    for key, title in ARTICLES.items():
        mine = [answer for answer in answers if answer.statement.id.startswith(f"{key}.")]
        if not mine:
            continue
        lines += [f"## {key} · {title}", "", "| | statement | printed | computed | command, and where they differ |"]
        lines.append("|---|---|---:|---:|---|")
        for answer in mine:
            statement = answer.statement
            notes = " ".join(_notes(answer))
            row = (f"{answer.mark} {statement.id}", statement.topic, statement.printed, figure(answer))
            lines.append(f"| {' | '.join(row)} | `{answer.command}`{f'. {notes}' if notes else ''} |")
        lines.append("")
    return "\n".join(lines)


def document(answers: Sequence[Answer]) -> dict[str, object]:
    """What `--json` prints."""
    rows = [
        {
            "id": answer.statement.id,
            "topic": answer.statement.topic,
            "printed": answer.statement.printed or None,
            "value": answer.statement.value,
            "unit": answer.statement.unit if answer.statement.printed else None,
            "computed": answer.computed,
            "mark": answer.mark,
            "partly": answer.statement.partly or None,
            "erratum": answer.statement.erratum or None,
            "command": answer.command,
        }
        for answer in answers
    ]
    return {"schema": 1, "card": ARTICLE_CARD, "statements": rows}
