"""The statements of the five articles, one file per article. Each names a command whose output shows it; facts and
figures only, in our own words.
"""

import math
import os
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base import toml

ARTICLES = {
    "000": "Simple GPU memory allocation experiments every ML engineer should do (medium.com/@akhilez)",
    "001": "ResNet-50 and GPT-2: what takes a GPU's memory (两面包+芝士)",
    "002": "训练 Transfomer 模型的内存消耗计算: an encoder-decoder transformer, term by term (hope_wisdom)",
    "003": "訓練、推理 AI 模型的 VRAM 開銷計算筆記: a LoRA calculator for Gemma 2 27B (Clay, vram.asmirnov.xyz)",
    "004": "Precisions, mixed precision, KV cache, LoRA and QLoRA",
}
WIDTH = "160"

Mark = Literal["●", "◐", "◌", "○"]
SCRIPTS = "examples/articles/"


class Erratum(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error of an article.

    Attributes:
        text: the correction, and by how much.
        command: computes it; the statement's own command if empty.
        says: words in its output.
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
        implied: a figure that follows from the article's code, chart or words, and is not printed in it.
        found: a figure of the program's own that shows the statement; the article has none.
        command: what a reader types, in a folder with this repository if it names a file.
        over: a second command; the figure is the first one's divided by this one's.
        figure: a regular expression over the command's output, runs of blanks made one; its group is the figure.
        over_figure: the expression for the second command; `figure` if absent.
        value: that figure by the article, in the unit in which the command prints it.
        within: half of the article's last printed digit.
        says: words in the command's output that show the statement.
        lacks: words that must not be in the output.
        needs: requirements besides vramtui.
        partly: why the statement is shown only in part.
        erratum: an error of the article.
    """

    id: str
    topic: str
    command: str
    printed: str = ""
    implied: str = ""
    found: str = ""
    over: str = ""
    figure: str = ""
    over_figure: str = ""
    value: float | None = None
    within: float = 0
    says: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    needs: Literal["", "torch", "a GPU"] = ""
    partly: str = ""
    erratum: Erratum | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A statement and the output of its commands.

    Attributes:
        statement: the statement.
        computed: the figure, as the command prints it; empty if the statement has none.
        missing: the expectations that do not hold.
    """

    statement: Statement
    computed: str
    missing: tuple[str, ...]

    @property
    def mark(self) -> Mark:
        """● shown; ◐ shown in part, for the reason given; ◌ only explained, by a help page; ○ not shown."""
        if self.missing:
            return "○"
        is_explained = self.statement.command.startswith("vramtui help")
        return "◐" if self.statement.partly else "◌" if is_explained else "●"


def statements() -> tuple[Statement, ...]:
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
    is_script = arguments[-1].startswith(SCRIPTS)
    if is_script:
        arguments.insert(1, "--show-output")
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:  # by the script
        stderr = os.dup(2)
        os.dup2(printed.fileno(), 2)
        done = CliRunner(env={"COLUMNS": WIDTH, "NO_COLOR": "1"}).invoke(program(), arguments)
        os.dup2(stderr, 2)
        os.close(stderr)
        printed.seek(0)
        text = printed.read() if is_script else done.output
    assert done.exit_code in ({0} if is_script else {0, 1}), f"{command}: {done.exit_code}\n{done.output}"
    assert done.exception is None or isinstance(done.exception, SystemExit), f"{command}: {done.exception!r}"
    return " ".join(text.split())


def answer(statement: Statement) -> Answer:
    printed = output(statement.command)
    missing = [words for words in statement.says if words not in printed]
    missing += [f"not {words}" for words in statement.lacks if words in printed]
    erratum = statement.erratum
    if erratum is not None:
        computed = output(erratum.command or statement.command)
        missing += [words for words in erratum.says if words not in computed]
    figure = _figure(statement) if statement.figure else ""
    if statement.figure and not figure:
        missing.append(statement.figure)
    elif statement.value is not None and not abs(number(figure) - statement.value) <= statement.within + 1e-9:
        missing.append(f"{statement.value:g}")
    return Answer(statement=statement, computed=figure, missing=tuple(missing))


def number(figure: str) -> float:
    digits = re.match(r"-?[\d,]*\.?\d+", figure)
    return float(digits[0].replace(",", "")) if digits else float("nan")


def _figure(statement: Statement) -> str:
    """Return the figure of the output, or the quotient of two; empty if a side is missing."""
    first = _matched(statement.figure, statement.command)
    if not statement.over:
        return first
    quotient = number(first) / number(_matched(statement.over_figure or statement.figure, statement.over))
    return "" if math.isnan(quotient) else f"{quotient:.3g}"


def _matched(pattern: str, command: str) -> str:
    match = re.search(pattern, output(command))
    return match[1] if match else ""
