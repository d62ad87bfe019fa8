"""The statements of the five articles, a file an article: each names a command that is typed, and what of its output
bears the statement out. Facts and figures only, in our own words.
"""

import re
import shlex
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base import toml

ARTICLES = {
    "000": "Experiments on PyTorch's allocations",
    "001": "ResNet-50 and GPT-2: what takes a GPU's memory",
    "002": "An encoder-decoder transformer, term by term",
    "003": "Gemma 2 27B: a LoRA calculator",
    "004": "Precisions, mixed precision, KV cache, LoRA and QLoRA",
}
WIDTH = "160"

Mark = Literal["●", "◐", "○"]


class Erratum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an article has wrong.

    Attributes:
        text: what is so, and by how much.
        command: computes it; the statement's own where empty.
        says: what that command prints.
    """

    text: str
    command: str = ""
    says: tuple[str, ...] = ()


class Statement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One statement.

    Attributes:
        id: article and number.
        topic: what is stated.
        printed: the article's own figure, as it stands there.
        implied: a figure that follows from the article and does not stand in it: of its code, of a bar, of a sentence.
        command: what a reader types, in a folder with this repository where it names a file.
        over: a second command: the figure is the first one's over this one's.
        figure: a regular expression over the command's output, runs of blanks made one; its group is the figure.
        value: what that figure is by the article, in the unit in which the command prints it.
        within: half of the article's last printed digit.
        says: words that the command prints, which bear the statement out.
        needs: what has to be there beside vramtui.
        partly: why it is borne out in part.
        erratum: what the article has wrong.
    """

    id: str
    topic: str
    command: str
    printed: str = ""
    implied: str = ""
    over: str = ""
    figure: str = ""
    value: float | None = None
    within: float = 0
    says: tuple[str, ...] = ()
    needs: Literal["", "torch", "a GPU"] = ""
    partly: str = ""
    erratum: Erratum | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A statement beside what its commands printed.

    Attributes:
        statement: what the article says.
        computed: the figure, as the command prints it; empty where the statement has none.
        missing: what was looked for and is not there; empty where all is.
    """

    statement: Statement
    computed: str
    missing: tuple[str, ...]

    @property
    def mark(self) -> Mark:
        """● all is there; ◐ some of it is not, or the statement says why it is borne out in part; ○ unexplained."""
        if self.missing:
            return "○"
        return "◐" if self.statement.partly else "●"


def statements() -> tuple[Statement, ...]:
    """Every statement, article by article."""
    files = (Path(__file__).with_name(f"{article}.toml") for article in ARTICLES)
    tables = (toml.loads(file.read_text(encoding="utf-8"))["statement"] for file in files)
    return tuple(statement for table in tables for statement in msgspec.convert(table, tuple[Statement, ...]))


@cache
def output(command: str) -> str:
    """What `command` prints, each run of blanks as one.

    Raises:
        AssertionError: it ends with bad input or a failure.
    """
    name, *arguments = shlex.split(command)
    assert name == "vramtui", command
    done = CliRunner(env={"COLUMNS": WIDTH, "NO_COLOR": "1"}).invoke(program(), arguments)
    assert done.exit_code in {0, 1}, f"{command}: {done.exit_code}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{command}: {done.exception!r}"
    return " ".join(done.output.split())


def answer(statement: Statement) -> Answer:
    """What the commands beside `statement` print of it."""
    printed = output(statement.command)
    missing = [words for words in statement.says if words not in printed]
    erratum = statement.erratum
    if erratum is not None:
        computed = output(erratum.command or statement.command)
        missing += [words for words in erratum.says if words not in computed]
    figure = _figure(statement) if statement.figure else ""
    if statement.figure and not figure:
        missing.append(statement.figure)
    elif statement.value is not None and abs(number(figure) - statement.value) > statement.within + 1e-9:
        missing.append(f"{statement.value:g}")
    return Answer(statement=statement, computed=figure, missing=tuple(missing))


def number(figure: str) -> float:
    """The number that a printed figure begins with; not a number where it begins with none."""
    digits = re.match(r"-?[\d,]*\.?\d+", figure)
    return float(digits[0].replace(",", "")) if digits else float("nan")


def _figure(statement: Statement) -> str:
    """The figure of the output, as it stands there; of two commands their quotient."""
    first = _matched(statement.figure, statement.command)
    if not statement.over:
        return first
    return f"{number(first) / number(_matched(statement.figure, statement.over)):.3g}"


def _matched(pattern: str, command: str) -> str:
    match = re.search(pattern, output(command))
    return match[1] if match else ""
