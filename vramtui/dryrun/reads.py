"""Lines where a job read unknown values, and a guess if its way depends on one of them."""

import ast
import re
from collections.abc import Collection
from functools import lru_cache
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import READ_PLACES, FileLimits
from vramtui.core.base.text import printable
from vramtui.dryrun.values import COMPARED, SIZED
from vramtui.estimators.torch_facts.convolutions import ConvolutionCall, Direction, Mode
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.guards import parsed
from vramtui.probe.reads import ALL, FOLLOWED, USES

JOB_FILE = FileLimits(what="file that is looked into", size=1 << 20)
# Libraries that only show, keep or send what they are given, and Python's own.
SHOWING = re.compile(
    r"-packages/(?:tensorboardX|wandb|tqdm|mlflow|comet_ml|neptune|swanlab|clearml|aim|loguru|rich|visdom|trackio|sacred)/"
    r"|/lib/python3\.\d+/(?:logging|json|csv|statistics|pprint)\b"
)
NAMES = {
    what: frozenset(names)
    for what, names in toml.loads(Path(__file__).with_name("functions.toml").read_text(encoding="utf-8")).items()
}
CHECKS, TEXTS, HEALTHY = frozenset(NAMES["checks"]), frozenset(NAMES["texts"]), tuple(NAMES["healthy"])
HARMLESS_STARTS = ("log", "plot", "print", "set_", "add_scalar", "write", "record", "report")
CHEAP = 300.0  # seconds from the start in which a run begins that reads other numbers, or takes a condition's other way
LONGER = 60.0  # seconds that the host may take more for numbers that are not zeros
# As runs read them that follow the first, and the most that whole numbers are: less where the job fails with more, as
# of a place in a list. There are at least two of most things that have a number.
NUMBERS = (("rising 10000", "rising 2", "rising 1"), ("falling 1",))
FIXED = 4  # as which the probe notes what no run varies
OPEN = ast.Subscript, ast.NamedExpr, ast.Lambda  # a place may be of a mask


class ReadPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A line that read such values, of no file where no Python code was running, as in a thread of autograd: whether it
    took all places that there can be, where a card has as many as hold; whether the way of the job may hang on what it
    read, which else is only shown or kept; and whether that is by a condition only, which can go the other way; whether
    the code that read is the job's, or a library's that may do anything with it; and if no run varies what it reads.
    """

    path: str
    line: int
    function: str
    code: str
    times: int
    decides: bool
    takes_all: bool = False
    is_condition: bool = False
    is_open: bool = True
    is_fixed: bool = False

    @property
    def words(self) -> str:
        where = f"{Path(self.path).name}:{self.line}" if self.path else "code that is not Python's"
        within = f" in {self.function}" if self.function not in {"", "<module>"} else ""
        times = f", {self.times:,} times" if self.times > 1 else ""
        return printable(f"{where}{within}{times}" + (f": {self.code}" if self.code else ""))


class ConvolutionRun(msgspec.Struct, frozen=True):
    """A convolution that cuDNN ran, by the probe's key: the most bytes in use without its workspace, and of that."""

    line: str
    key: str
    direction: Direction
    call: ConvolutionCall
    mode: Mode
    in_use: int
    taken: int


_Lists = tuple[list[int], list[int], list[int]]  # dilations, strides, paddings; or a tensor's type, sides, strides
DIRECTIONS: dict[int, Direction] = {10: "forward", 11: "weight", 12: "input"}  # cuDNN's numbers, as these
DTYPES = {0: ("float32", 4), 1: ("float64", 8), 2: ("float16", 2), 9: ("bfloat16", 2)}
_Rows = tuple[list[tuple[str, int, str, str, int]], list[tuple[str, str, Mode, int, int]]]


def read_places(folder: Path) -> tuple[tuple[ReadPlace, ...], tuple[ConvolutionRun, ...]]:
    """The places of all processes: those that decide first, then those that took all places, then by how often; and
    their convolutions.
    """
    times: dict[tuple[str, int, str, str], int] = {}
    uses: dict[tuple[str, int], set[tuple[int, str]]] = {}
    convolutions: list[ConvolutionRun] = []
    for file in islice(folder.glob("*.reads"), READ_PLACES.count):
        try:
            rows, convolved = msgspec.json.decode(read_plain(file, READ_PLACES), type=_Rows)
            for line, key, *how in convolved[: READ_PLACES.count]:
                convolutions.append(ConvolutionRun(line, key, *_convolution_of(key), *how))
        except (UserError, msgspec.DecodeError, UnicodeDecodeError, ArithmeticError, LookupError):
            continue
        for path, line, function, inside, count in rows[: READ_PLACES.count]:
            if inside.endswith(tuple(USES)):
                uses.setdefault((path, line), set()).add((USES.index(inside[-1]), inside[:-1]))
                continue
            times[path, line, function, inside] = times.get((path, line, function, inside), 0) + count
    fixed = {place for place, each in uses.items() if each & {(FIXED, ""), (SIZED, "")}}
    uses = {place: rest for place, each in uses.items() if (rest := each - {(FIXED, "")})}
    places = (
        ReadPlace(
            path=path,
            line=line,
            function=function,
            code="".join(_text(path).splitlines()[max(line - 1, 0) : max(line, 0)]).strip()[:120],
            times=count,
            takes_all=inside.endswith(ALL),
            is_condition=(path, line) in uses
            and not any(use == SIZED and (not where or leads_on(where)) for use, where in uses[path, line]),
            is_open=(
                is_open := not inside.startswith(HEALTHY)
                and not SHOWING.search(path)
                and f"{'/'.join(Path(path).parts[-2:])}:{function}" not in NAMES["keeping"]
            ),
            is_fixed=(path, line) in fixed,
            decides=is_open
            and decides(path, line, {*uses.get((path, line), ()), (COMPARED * (not inside.endswith(FOLLOWED)), "")}),
        )
        for (path, line, function, inside), count in times.items()
    )
    order = sorted(
        places, key=lambda place: (not place.decides, not place.takes_all, -place.times, place.path, place.line)
    )
    return tuple(order), tuple(convolutions)


def _convolution_of(key: str) -> tuple[Direction, ConvolutionCall]:
    """The direction and the convolution of the probe's key: numbers of cuDNN's descriptors."""
    direction, how, weight, tensor, out = msgspec.json.decode(key, type=tuple[int, _Lists, _Lists, _Lists, _Lists])
    shapes = [one[1] for one in (tensor, weight, out)]
    is_line = all(len(shape) == 4 and shape[2] == 1 for shape in shapes)  # to which PyTorch gives a height
    first, second, third = (tuple(shape[:2] + shape[2 + is_line :]) for shape in shapes)
    names = ("dilation", "stride", "padding")
    form: dict[str, Any] = {name: tuple(one[is_line:]) for name, one in zip(names, how, strict=True)}
    dtype, itemsize = DTYPES.get(tensor[0][0], ("", 2))
    is_last = any(
        side > 1 and step != prod(shape[at + 1 :])
        for _, shape, steps in (tensor, weight)
        for at, (side, step) in enumerate(zip(shape, steps, strict=False))
    )
    form |= {"groups": tensor[1][1] // weight[1][1], "channels_last": is_last}
    call = ConvolutionCall(shapes=(first, second, third), dtype=dtype, itemsize=itemsize, **form)
    return DIRECTIONS[direction], call


def decides(path: str, line: int, uses: Collection[tuple[int, str]]) -> bool:
    """Return whether a value that this line reads may decide what is done later, by how and where it was used: a number
    that is followed decides nothing if none of that leads on.
    """
    if (SIZED, "") in uses or any(where and leads_on(where) for _, where in uses):
        return True
    return (COMPARED, "") in uses and may_decide(_text(path), line)  # what becomes of it is not known


@lru_cache(maxsize=1024)
def leads_on(where: str) -> bool:
    """Return whether what is made of a read number at `FILE:LINE`, a truth or a whole number, may decide what is done:
    not if it only becomes part of a text that is shown.
    """
    path, _, line = where.rpartition(":")
    is_shown = SHOWING.search(path) or any(f"/torch/{one}" in path for one in HEALTHY if one[0] != "_")  # no compiler
    return not is_shown and may_decide(_text(path), int(line) if line.isdecimal() else 0)


def may_decide(text: str, line: int) -> bool:
    """Return whether a value that this line reads may decide what is done later: not if the line is a check that holds
    in a healthy job, or only shows it.
    """
    statement = _statement(parsed(text), line)
    if isinstance(statement, (ast.If, ast.Assert)) and set(map(_name, ast.walk(statement.test))) & CHECKS:
        return False
    if not isinstance(statement, ast.Expr) or any(isinstance(one, OPEN) for one in ast.walk(statement)):
        return True
    name = _name(statement.value)
    return not (name in TEXTS or name.lower().startswith(HARMLESS_STARTS))


def _name(node: ast.AST) -> str:
    """The name of what a call calls; empty for other nodes."""
    called = getattr(node, "func", None)
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _statement(tree: ast.Module, line: int) -> ast.stmt | None:
    """The innermost statement at a line, if it is one; of a compound one its head."""
    statement: ast.stmt | None = None
    for node in ast.walk(tree):  # outer ones first
        is_head = isinstance(statement, (ast.If, ast.While)) and statement.lineno == line
        if isinstance(node, ast.stmt) and not is_head and node.lineno <= line <= (node.end_lineno or node.lineno):
            if statement is not None and not hasattr(statement, "body") and not hasattr(statement, "cases"):
                return None
            statement = node
    return statement


@lru_cache(maxsize=64)
def _text(path: str) -> str:
    try:
        return read_plain(Path(path), JOB_FILE).decode(errors="replace")
    except UserError:
        return "?"
