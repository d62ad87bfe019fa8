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

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import READ_PLACES, FileLimits
from vramtui.core.base.text import printable
from vramtui.dryrun.values import COMPARED, EQUATED, SIZED
from vramtui.estimators.torch_facts.convolutions import ConvolutionCall, Direction, Mode
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.guards import parsed
from vramtui.probe.reads import ALL, FOLLOWED, USES

JOB_FILE = FileLimits(what="file that is looked into", size=1 << 20)
# Files of torch whose reads decide nothing where all values are finite: checks of overflow, what is printed or written
# for TensorBoard, the sizes of pickled objects (which are known), seeds of dropout (native/cudnn/RNN.cpp), ranks of
# SyncBatchNorm that have any number, learning rates, what a compiler tries out, weights that a module loads or moves,
# storages that `torch.save` brings to the host (torch 2.13, serialization.py, `_save`), the probe's own.
HEALTHY = (
    "amp/grad_scaler.py", "nn/utils/clip_grad.py", "nn/modules/rnn.py", "nn/modules/_functions.py", "_tensor_str.py",
    "distributed/", "optim/adam", "optim/sgd", "optim/lr_scheduler", "_inductor/", "_dynamo/", "storage.py",
    "serialization.py", "nn/modules/module.py", "utils/tensorboard/", "vramtui",
)  # fmt: skip
# Libraries that only show, keep or send what they are given, and Python's own.
SHOWING = re.compile(
    r"-packages/(?:tensorboardX|wandb|tqdm|mlflow|comet_ml|neptune|swanlab|clearml|aim|loguru|rich|visdom|trackio|sacred)/"
    r"|/lib/python3\.\d+/(?:logging|json|csv|statistics|pprint)\b"
)
# What takes a value from the card in so many words; any other read tells an operator the size of its result.
TAKING = frozenset({"item", "tolist", "cpu", "numpy", "to", "float", "int", "bool", "str", "format", "print", "round"})
# Checks that hold, or do not, as in a healthy job, for what is computed reads as a number.
FINITE = frozenset({"isnan", "isinf", "isfinite"})
CHECKS = FINITE | {"allclose", "equal"}
# Functions of libraries that log a loss and keep it for the next line of the log, write tensors to a file (safetensors
# 0.8, `_tobytes` up to 0.7), or look whether a norm is finite and not negative, as zero is, or bring it to the card
# again as one number (DeepSpeed 0.19.8).
KEEPING = {
    ("transformers/trainer.py", "_maybe_log_save_evaluate"), ("safetensors/torch.py", "_to_ndarray"),
    ("safetensors/torch.py", "_tobytes"), ("runtime/utils.py", "is_invalid_grad_norm"),
    ("zero/stage3.py", "complete_grad_norm_calculation_for_cpu_offload"),
    ("zero/stage_1_and_2.py", "complete_grad_norm_calculation_for_cpu_offload"),
}  # fmt: skip
# What makes a number of Python's that may be a size; a loss is none.
SIZES = frozenset({"item", "tolist", "int", "astype", "ceil", "floor", "round", "nonzero", "unique", "bincount"})
# Functions that show a number, keep it, or make another number of it; what any other is given may be a size.
HARMLESS = TAKING | frozenset(
    {
        "abs", "add", "append", "array", "debug", "dict", "dump", "dumps", "enumerate", "error", "exp", "extend",
        "get", "info", "isfinite", "isinf", "isnan", "isinstance", "items", "join", "len", "list", "log", "max", "mean",
        "min", "pop", "pow", "save", "set", "sorted", "sqrt", "std", "step", "sum", "tensor", "tuple", "update",
        "all_reduce", "average", "median", "warning", "write", "writelines", "zip",
    }
)  # fmt: skip
# Functions that show something, or make a text.
TEXTS = frozenset({"debug", "error", "exit", "float", "format", "info", "join", "round", "str", "warn", "warning"})
WHOLE = frozenset({"int", "round", "floor", "ceil", "trunc"})
HARMLESS_STARTS = ("log", "plot", "print", "set_", "add_scalar", "write", "record", "report")
MOST_CALLS = 3  # of functions of one file through which a value is followed
_CHOOSING = (ast.Compare, ast.IfExp, ast.BoolOp, ast.UnaryOp)
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module


class ReadPlace(msgspec.Struct, frozen=True, kw_only=True):
    """A line that read such values, of no file where no Python code was running, as in a thread of autograd: whether it
    took all places that there can be, where a card has as many as hold; whether the way of the job may hang on what it
    read, which else is only shown or kept; and whether that is by a condition only, which can go the other way.
    """

    path: str
    line: int
    function: str
    code: str
    times: int
    decides: bool
    takes_all: bool = False
    is_condition: bool = False

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
    places = (
        ReadPlace(
            path=path,
            line=line,
            function=function,
            code="".join(_text(path).splitlines()[max(line - 1, 0) : max(line, 0)]).strip()[:120],
            times=count,
            takes_all=inside.endswith(ALL),
            is_condition=(path, line) in uses
            and not any(use == SIZED and (not where or leads_on(use, where)) for use, where in uses[path, line]),
            decides=not inside.startswith(HEALTHY)
            and not SHOWING.search(path)
            and ("/".join(Path(path).parts[-2:]), function) not in KEEPING
            and decides(
                _text(path), line, {*uses.get((path, line), ()), (COMPARED * (not inside.endswith(FOLLOWED)), "")}
            ),
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


def decides(text: str, line: int, uses: Collection[tuple[int, str]]) -> bool:
    """Return whether a value that this line reads may decide what is done later, by how and where it was used: a number
    that is followed decides nothing if none of that leads on, unless an array or a tensor was made of it.
    """
    if (SIZED, "") in uses or any(where and leads_on(use, where) for use, where in uses):
        return True
    if (COMPARED, "") in uses:  # what becomes of it is not known
        return may_decide(text, line)
    statement, function = _place(parsed(text), line)
    values = set() if statement is None else _names_made_of(function, statement) or set()
    arrays: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
        # Nothing follows it there.
        given = [part for one in calls if _names(one.func) & {"torch", "np", "numpy", "math"} for part in one.args]
        if any(_names(part) & values or (node is statement and "item" in _called(part)) for part in given):
            arrays |= _names_made_of(function, node) or set()
    return any(_decides(node, arrays) or _gives(node, arrays) for node in ast.walk(function)) if arrays else False


@lru_cache(maxsize=1024)
def leads_on(use: int, where: str) -> bool:
    """Return whether what is made of a read number at `FILE:LINE`, a truth or a whole number, may decide what is done:
    not if it only becomes part of a text, chooses between texts, or among such numbers the least or the greatest.
    """
    path, _, line = where.rpartition(":")
    statement, function = _place(tree := parsed(_text(path)), int(line) if line.isdecimal() else 0)
    is_shown = SHOWING.search(path) or any(f"/torch/{one}" in path for one in HEALTHY if one[0] != "_")  # no compiler
    if statement is None or is_shown:
        return statement is None and not is_shown
    nodes = list(ast.walk(statement))
    if use == SIZED:
        shown = {id(part) for one in nodes if _is_text(one) or _is_shown(one) for part in ast.walk(one)}
        is_kept = isinstance(statement, (ast.Assign, ast.AnnAssign, ast.AugAssign))  # the text, which may be read again
        return is_kept or not shown or any(id(one) not in shown for one in nodes if _name(one) in WHOLE)
    if isinstance(statement, ast.Assert) or (isinstance(statement, ast.If) and _only_shows(statement)):
        return False
    chosen = [one for one in nodes if isinstance(one, _CHOOSING)]
    most = [one for one in nodes if _name(one) in {"min", "max"}]
    if use != EQUATED and most and not chosen and all(isinstance(one, ast.Call) and len(one.args) == 1 for one in most):
        return any(isinstance(one, (ast.stmt, ast.keyword)) or _name(one) == "bool" for one in nodes[1:])
    if isinstance(statement, ast.Assign) and most == [statement.value]:  # `self.best = min(self.best, loss)`
        best, of = ast.unparse(statement.targets[0]), {ast.unparse(one) for one in getattr(most[0], "args", ())}
        asked = [ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Compare) or _name(one) in WHOLE]
        # Beside another of these numbers, which are followed, nothing is asked of the best unheard.
        is_unheard = (best in one and not any(other in one for other in of - {best}) for one in asked)
        return best not in of or any(is_unheard)
    harmful = [one for one in nodes if isinstance(one, ast.Call) and not _is_harmless(_name(one))]
    if harmful and (use == EQUATED or not chosen):  # a function compares, and gives what follows from that
        return True
    given = [part for one in harmful for part in (*one.args, *(named.value for named in one.keywords))]
    given += [one.slice for one in nodes if isinstance(one, ast.Subscript)]
    is_led = any(isinstance(part, _CHOOSING) for one in given for part in ast.walk(one)) or any(
        one in harmful for way in chosen if not isinstance(way, ast.Compare) for one in ast.walk(way)
    )
    is_lost = isinstance(statement, ast.Expr) and not _is_shown(statement.value) and _appended(statement.value) is None
    return is_led or is_lost or _spreads(tree, statement, function, set(), is_size=True)


def _only_shows(condition: ast.If) -> bool:
    """Return whether the ways of a condition only show something, give back a text, or end in an error."""
    return all(
        isinstance(one, (ast.Raise, ast.Pass))
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and all(map(_shows, _called(one))))
        or (isinstance(one, ast.Return) and one.value is not None and _is_text(one.value))
        or (isinstance(one, ast.If) and _only_shows(one))
        for one in [*condition.body, *condition.orelse]
    )


def _is_shown(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _shows(_name(node)) and all(map(_is_harmless, _called(node)))


def _is_text(node: ast.AST) -> bool:
    text = getattr(node.left if isinstance(node, ast.BinOp) else node, "value", None)  # of `text % numbers`
    return isinstance(node, ast.JoinedStr) or isinstance(text, str) or _name(node) in {"str", "format", "join"}


def _name(node: ast.AST) -> str:
    """The name of what a call calls; empty for other nodes."""
    called = getattr(node, "func", None)
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _shows(name: str) -> bool:
    return name in TEXTS or name.lower().startswith(HARMLESS_STARTS)


def _is_harmless(name: str) -> bool:
    return name in HARMLESS or _shows(name)


def may_decide(text: str, line: int) -> bool:
    """Return whether a value that this line reads may decide what is done later, as far as its own function shows."""
    statement, function = _place(tree := parsed(text), line)
    if statement is None:
        return True
    is_check = isinstance(statement, (ast.If, ast.Assert)) and _called(statement.test) & CHECKS
    is_text = isinstance(statement, ast.Return) and statement.value is not None and _is_text(statement.value)
    if is_check or is_text or getattr(function, "name", "") in {"__str__", "__repr__", "__format__"}:
        return False
    if isinstance(statement, ast.Return):  # a log, if they go into a dictionary whose keys the file looks up nowhere
        dicts = [node for node in ast.walk(statement) if isinstance(node, ast.Dict)]
        keys = {getattr(key, "value", None) for one in dicts for key in one.keys}
        read = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and _called(node) & TAKING]
        inside = {id(node) for one in dicts for value in one.values for node in ast.walk(value)}
        looks = (one for one in ast.walk(tree) if isinstance(one, ast.Subscript) and isinstance(one.ctx, ast.Load))
        looked_up = {getattr(one.slice, "value", None) for one in looks}
        if read and all(id(node) in inside for node in read) and None not in keys and not keys & looked_up:
            return False
    is_size = bool(_called(statement) & SIZES) and "loss" not in ast.unparse(statement).lower()
    is_taken = bool(_called(statement) & TAKING) or any(isinstance(one, ast.JoinedStr) for one in ast.walk(statement))
    if isinstance(statement, ast.Expr) and not any(isinstance(node, ast.Subscript) for node in ast.walk(statement)):
        method = getattr(getattr(statement.value, "func", None), "attr", "")
        is_taken |= method.startswith("add_scalar")  # TensorBoard's
    if not is_taken and not (isinstance(statement, ast.If) and _only_sets(statement)):
        return True
    asked = [one.test for one in ast.walk(statement) if isinstance(one, ast.IfExp)]
    if any(_called(one) & TAKING for one in asked) or (
        is_size and any(_gives(node, set()) for node in ast.walk(statement))
    ):
        return True
    return _spreads(tree, statement, function, set(), is_size=is_size)


def _spreads(
    tree: ast.Module, statement: ast.stmt | None, function: _Function, names: set[str], *, is_size: bool, depth: int = 0
) -> bool:
    """Return whether what a statement makes may decide, in its function or in those of the file that call it; `names`
    are functions that return such values.
    """
    is_plain = isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return))
    if statement is None or not (is_plain or (isinstance(statement, ast.If) and _only_sets(statement))):
        return True
    if (results := _names_made_of(function, statement)) is None:
        return True
    values, nodes = results | names, list(ast.walk(function))
    returns = [node for node in nodes if isinstance(node, ast.Return)]  # of a whole file those of its functions
    if any(_decides(node, values) or (is_size and _gives(node, values)) for node in nodes if node not in returns):
        return True
    is_returned = any(
        node is statement or (node.value is not None and _names(node.value) & results) for node in returns
    )
    if function is tree or not is_returned:
        return False
    name = getattr(function, "name", "")
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == name]
    is_method = any(function in one.body for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
    mentions = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name]
    if not calls or is_method or len(mentions) > len(calls) or depth > MOST_CALLS:
        return True
    return any(_spreads(tree, *_place(tree, one.lineno), {name}, is_size=is_size, depth=depth + 1) for one in calls)


def _only_sets(condition: ast.If) -> bool:
    """Return whether both ways of a condition only set names, show or save something."""
    ways = [*condition.body, *condition.orelse]
    called = set().union(*map(_called, ways))
    saving = {"save", "state_dict", "join"} if any("torch.save(" in ast.unparse(one) for one in ways) else set()
    return all(isinstance(one, (ast.Assign, ast.AugAssign, ast.Expr, ast.Pass)) for one in ways) and all(
        name in saving or name.lower().startswith(HARMLESS_STARTS) for name in called
    )


def _gives(node: ast.AST, values: set[str]) -> bool:
    """Return whether a call gives a read value, or one of these names, to a function that may make a size of it."""
    if not isinstance(node, ast.Call):
        return False
    if _is_harmless(_name(node)):
        return False
    given = [*node.args, *(one.value for one in node.keywords)]
    return any(_names(one) & values or (_called(one) & TAKING and not values) for one in given)


def _called(tree: ast.AST) -> set[str]:
    return {_name(node) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def _place(tree: ast.Module, line: int) -> tuple[ast.stmt | None, _Function]:
    """The innermost statement at a line (of a compound one its head, also on one line), and the function around it."""
    statement: ast.stmt | None = None
    function: _Function = tree
    for node in ast.walk(tree):  # outer ones first
        is_head = isinstance(statement, (ast.If, ast.While)) and statement.lineno == line
        if isinstance(node, ast.stmt) and not is_head and node.lineno <= line <= (node.end_lineno or node.lineno):
            statement = node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function = node
    return statement, function


def _names(node: ast.AST) -> set[str]:
    """The names below a node but for those that only become part of a text or are asked whether they are finite."""
    text = getattr(getattr(node, "left", None), "value", None)  # of `text % names`
    if isinstance(node, ast.JoinedStr) or isinstance(text, str) or _name(node) in FINITE:
        return set()
    own = {node.id} if isinstance(node, ast.Name) else set()
    return own.union(*map(_names, ast.iter_child_nodes(node)))


def _names_made_of(function: _Function, statement: ast.stmt) -> set[str] | None:
    """Names that hold what a statement makes, and what is made of them; None if it is kept beyond the function."""
    values: set[str] = set()
    while True:
        more: set[str] = set()
        for node in ast.walk(function):
            is_set = isinstance(node, ast.If) and _only_sets(node) and bool(_names(node.test) & values)
            is_made = isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) or (
                isinstance(node, ast.Expr) and _appended(node.value) is not None
            )
            is_set |= bool(is_made and _names(getattr(node, "value", None) or node) & values)
            if isinstance(node, ast.stmt) and (node is statement or is_set):
                ways = [*node.body, *node.orelse] if isinstance(node, ast.If) else [node]
                for names in map(_targets, ways):
                    if names is None:
                        return None
                    more |= names
        if more <= values:
            return values
        values |= more


def _targets(node: ast.stmt) -> set[str] | None:
    """The names that a statement gives something to; None for an attribute, which others see."""
    if isinstance(node, ast.Expr):
        return {name} if (name := _appended(node.value)) else set()
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return set()
    names: set[str] = set()
    for target in targets:
        for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]:
            written = element.value if isinstance(element, (ast.Subscript, ast.Starred)) else element
            if not isinstance(written, ast.Name):
                return None
            names.add(written.id)
    return names


def _appended(value: ast.expr) -> str | None:
    method: Any = getattr(value, "func", None)
    return getattr(method.value, "id", None) if getattr(method, "attr", "") in {"append", "extend"} else None


# What of a node decides the way of the code, or a size.
_DECIDING = {
    ast.If: "test", ast.While: "test", ast.IfExp: "test", ast.Assert: "test", ast.comprehension: "ifs",
    ast.Return: "value", ast.Yield: "value", ast.Subscript: "slice", ast.For: "iter", ast.AsyncFor: "iter",
}  # fmt: skip


def _decides(node: ast.AST, values: set[str]) -> bool:
    asked: Any = getattr(node, _DECIDING.get(type(node), ""), None)
    is_missing = isinstance(asked, ast.Compare) and isinstance(asked.ops[0], (ast.Is, ast.IsNot))
    if (is_missing and hasattr(node, "test")) or (isinstance(node, ast.If) and _only_sets(node)):
        return False
    return any(one is not None and _names(one) & values for one in (asked if isinstance(asked, list) else [asked]))


@lru_cache(maxsize=64)
def _text(path: str) -> str:
    try:
        return read_plain(Path(path), JOB_FILE).decode(errors="replace")
    except UserError:
        return "?"
