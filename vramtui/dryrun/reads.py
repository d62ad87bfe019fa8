"""Lines where a job read unknown values, and a guess if its way depends on one of them."""

import ast
import re
from collections import Counter
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
from vramtui.probe.reads import ALL, CALLED, CALLS, FOLLOWED, PACKAGES, USES

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
TAKING, FINITE, WHOLE = NAMES["taking"], NAMES["finite"], NAMES["whole"]
HARMLESS, HEALTHY = NAMES["harmless"] | TAKING, tuple(NAMES["healthy"])
HEARD, KEPT, UNSIZED, CHOSEN = 1, 2, 3, 4  # levels of `Course`
HARMLESS_STARTS = ("log", "plot", "print", "set_", "add_scalar", "write", "record", "report")
MOST_CALLS = 3  # of functions of the job through which a value is followed, each given to the next
_Named = ast.FunctionDef, ast.AsyncFunctionDef
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
    stacks: dict[tuple[str, int], set[str]] = {}
    convolutions: list[ConvolutionRun] = []
    for file in islice(folder.glob("*.reads"), READ_PLACES.count):
        try:
            rows, convolved = msgspec.json.decode(read_plain(file, READ_PLACES), type=_Rows)
            for line, key, *how in convolved[: READ_PLACES.count]:
                convolutions.append(ConvolutionRun(line, key, *_convolution_of(key), *how))
        except (UserError, msgspec.DecodeError, UnicodeDecodeError, ArithmeticError, LookupError):
            continue
        for path, line, function, inside, count in rows[: READ_PLACES.count]:
            if inside.endswith(CALLED):
                stacks.setdefault((path, line), set()).add(inside[:-1])
                continue
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
            and f"{'/'.join(Path(path).parts[-2:])}:{function}" not in NAMES["keeping"]
            and decides(
                path,
                line,
                {*uses.get((path, line), ()), (COMPARED * (not inside.endswith(FOLLOWED)), "")},
                stacks.get((path, line), ("",)),
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


def decides(path: str, line: int, uses: Collection[tuple[int, str]], stacks: Collection[str] = ("",)) -> bool:
    """Return whether a value that this line reads may decide what is done later, by how and where it was used: a number
    that is followed decides nothing if none of that leads on, unless an array or a tensor was made of it.
    """
    if (SIZED, "") in uses or any(where and leads_on(use, where) for use, where in uses):
        return True
    if (COMPARED, "") in uses:  # what becomes of it is not known
        return may_decide(_text(path), line, path, stacks)
    return any(_reaches(parsed(_text(path)), path, line, HEARD, stack) for stack in stacks)


@lru_cache(maxsize=1024)
def leads_on(use: int, where: str) -> bool:
    """Return whether what is made of a read number at `FILE:LINE`, a truth or a whole number, may decide what is done:
    not if it only becomes part of a text, chooses between texts, or among such numbers the least or the greatest.
    """
    path, _, line = where.rpartition(":")
    statement, _ = _place(tree := parsed(_text(path)), int(line) if line.isdecimal() else 0)
    is_shown = SHOWING.search(path) or any(f"/torch/{one}" in path for one in HEALTHY if one[0] != "_")  # no compiler
    if statement is None or is_shown:
        return statement is None and not is_shown
    nodes = list(ast.walk(statement))
    if use == SIZED and isinstance(statement, ast.Assign) and any(map(_is_text, nodes)):  # which may be read again
        return True
    chosen = [one for one in nodes if isinstance(one, (ast.Compare, ast.IfExp, ast.BoolOp, ast.UnaryOp))]
    most = [one for one in nodes if isinstance(one, ast.Call) and _name(one) in {"min", "max"}]
    is_one = use == COMPARED and most and not chosen and all(len(one.args) == 1 and not one.keywords for one in most)
    if isinstance(statement, ast.Assign) and most == [statement.value] and not is_one:  # `best = min(best, loss)`
        best, of = ast.unparse(statement.targets[0]), {ast.unparse(one) for one in most[0].args}
        asked = [ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Compare) or _name(one) in WHOLE]
        # Beside another of these numbers, which are followed, nothing is asked of the best unheard.
        is_unheard = (best in one and not any(other in one for other in of - {best}) for one in asked)
        return best not in of or any(is_unheard)
    return _reaches(tree, path, int(line), HEARD if is_one else KEPT, "")


def _is_text(node: ast.AST) -> bool:
    text = getattr(node.left if isinstance(node, ast.BinOp) else node, "value", None)  # of `text % numbers`
    return isinstance(node, ast.JoinedStr) or isinstance(text, str) or _name(node) in {"str", "format", "join"}


def _name(node: ast.AST) -> str:
    """The name of what a call calls; empty for other nodes."""
    called = getattr(node, "func", None)
    return str(getattr(called, "attr", getattr(called, "id", "")))


def _shows(name: str) -> bool:
    return name in NAMES["texts"] or name.lower().startswith(HARMLESS_STARTS)


def may_decide(text: str, line: int, path: str = "", stacks: Collection[str] = ("",)) -> bool:
    """Return whether a value that this line reads may decide what is done later, as far as the code shows that has it:
    its function, and those that it is given or returned to.
    """
    statement, _ = _place(tree := parsed(text), line)
    if statement is None:
        return True
    if isinstance(statement, (ast.If, ast.Assert)) and set(map(_name, ast.walk(statement.test))) & NAMES["checks"]:
        return False
    called, nodes = set(map(_name, ast.walk(statement))), list(ast.walk(statement))
    is_shown = any(map(_shows, called)) and not any(isinstance(node, ast.Subscript) for node in nodes)
    is_taken = is_shown or called & TAKING or any(isinstance(node, ast.JoinedStr) for node in nodes)
    if not is_taken and not isinstance(statement, ast.If):
        return True
    is_number = bool(called & NAMES["sizes"]) and "loss" not in ast.unparse(statement).lower()
    return any(_reaches(tree, path, line, KEPT, stack, is_number=is_number) for stack in stacks)


def _reaches(
    tree: ast.Module, path: str, line: int, level: int, stack: str, *, is_number: bool = True, called: str = ""
) -> bool:
    """Return whether what a statement reads, or has of the function that it called, reaches what decides there, or
    where that is returned: at the lines of `stack`, or else at the calls in the file.
    """
    statement, function = _place(tree, line)
    if statement is None:
        return True
    course = Course(tree, function, path, is_number=is_number)
    try:
        course.read(statement, level, called)
    except (_DecidesError, RecursionError):
        return True
    if function is tree or course.returned == CHOSEN or course.returned <= HEARD * (not stack):
        return course.returned == CHOSEN
    name = getattr(function, "name", "")
    how: dict[str, Any] = {"is_number": course.is_number, "called": name}
    if stack:
        call, _, rest = stack.partition(CALLS)
        file, _, number = call.rpartition(":")
        return _reaches(parsed(_text(file)), file, int(number), course.returned, rest, **how)
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and getattr(one.func, "id", "") == name]
    is_method = any(function in one.body for one in ast.walk(tree) if isinstance(one, ast.ClassDef))
    mentions = [one for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id == name]
    is_again = any(_place(tree, one.lineno)[1] is function for one in calls)
    if not calls or is_method or is_again or len(mentions) > len(calls):
        return True
    return any(_reaches(tree, path, one.lineno, course.returned, "", **how) for one in calls)


class _DecidesError(Exception):
    """A value that was read reaches what decides the way of the code, or a size."""


class Course:
    """The course of a value through a function, by a level of each name: HEARD if all that asks for it is noted, KEPT
    if it is a number or as many as are known, UNSIZED if as many as are not, CHOSEN if it may be one thing or another.
    What objects of others keep is not looked for.
    """

    def __init__(self, tree: ast.Module, function: _Function, path: str, *, is_number: bool, depth: int = 0) -> None:
        self.tree, self.function, self.path, self.is_number, self.depth = tree, function, path, is_number, depth
        self.levels, self.most = Counter[str](), Counter[str]()  # now, and the most that a name ever had
        self.parts: dict[str, str] = {}  # names of what is a part of another
        self.sources: dict[ast.AST, int] = {}
        self.returned = self.under = 0  # conditions by such values that the code is in
        nodes = list(ast.walk(function))
        self.parameters = {one.arg for one in nodes if isinstance(one, ast.arg)}
        names = [one for one in nodes if isinstance(one, ast.Name)]
        self.own = {one.id for one in names if function is tree or isinstance(one.ctx, ast.Store)}
        self.own -= {name for one in nodes if isinstance(one, (ast.Global, ast.Nonlocal)) for name in one.names}

    def read(self, statement: ast.stmt, level: int, called: str = "") -> None:
        """Follow what a statement reads, in so many words if it has them, or what a function gives that it calls."""
        head = next((one for name in ("test", "iter", "items") if (one := getattr(statement, name, None))), statement)
        nodes = [node for part in (head if isinstance(head, list) else [head]) for node in ast.walk(part)]
        calls = [node for node in nodes if isinstance(node, (ast.Call, ast.Compare))]
        words = {called} if called else TAKING - {"to", "print"} | WHOLE | {"array", "asarray"}
        self.sources = dict.fromkeys([node for node in calls if _name(node) in words] or calls or nodes[:1], level)
        self.follow()

    def follow(self) -> None:
        self._block(self.function.body)
        for one in ast.walk(self.function):  # functions that see its names
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and one is not self.function:
                inner = Course(self.tree, one, self.path, is_number=True)
                names = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)}
                if any(self.most[name] >= KEPT for name in names - inner.own - inner.parameters):
                    raise _DecidesError

    def _block(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            match node:
                case ast.Assign() | ast.AnnAssign():
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        self._set(target, self._choice(self._value(node.value), node.value), node.value)
                case ast.AugAssign():
                    level = max(self._value(node.target), self._value(node.value))
                    self._set(node.target, max(level, UNSIZED * (self.under > 0)))
                case ast.Return():
                    self.returned = max(self.returned, self._choice(self._value(node.value), node.value))
                    self.under += self.under > 0  # so is all behind it
                case ast.If():
                    self._ways(self._value(node.test), node.body, node.orelse)
                case ast.For() | ast.AsyncFor() | ast.While():
                    before: Any = None
                    while before != (self.levels, self.under > 0):
                        asked = self._value(node.test if isinstance(node, ast.While) else node.iter)
                        before = Counter(self.levels), self.under > 0
                        is_under = asked >= (KEPT if isinstance(node, ast.While) else UNSIZED)
                        self._set(getattr(node, "target", None), min(asked, UNSIZED))
                        self._ways(KEPT * is_under, node.body, [])
                    self._block(node.orelse)
                case ast.Try():
                    self._ways(0, node.body, *(handler.body for handler in node.handlers))
                    self._block(node.orelse + node.finalbody)
                case ast.Match():
                    self._ways(self._value(node.subject), *(case.body for case in node.cases))
                case ast.With() | ast.AsyncWith():
                    for item in node.items:
                        self._set(item.optional_vars, self._value(item.context_expr))
                    self._block(node.body)
                case ast.Break() | ast.Continue() if self.under:
                    raise _DecidesError
                case ast.Expr():
                    self._value(node.value)

    def _ways(self, level: int, *ways: list[ast.stmt]) -> None:
        before = after = self.levels
        self.under += level >= KEPT
        for way in ways:
            self.levels = Counter(before)
            self._block(way)
            after = after | self.levels
        self.under -= level >= KEPT
        self.levels = after

    def _choice(self, level: int, value: ast.expr | None) -> int:
        """The level of what has a value if the code comes here, and else something else."""
        if not self.under or level in (KEPT, UNSIZED):
            return UNSIZED if self.under else level
        if isinstance(value, ast.BinOp) and not {type(value.left), type(value.right)} & {ast.Constant}:
            raise _DecidesError  # perhaps of tensors
        if value is None or isinstance(value, ast.Constant) or _name(value) in {"float", "int"}:
            return KEPT
        return 0 if _is_text(value) else CHOSEN

    def _set(self, target: ast.expr | None, level: int, value: ast.expr | None = None) -> None:
        if isinstance(target, (ast.Tuple, ast.List, ast.Starred)):
            for element in [target.value] if isinstance(target, ast.Starred) else target.elts:
                self._set(element, level)
        elif isinstance(target, ast.Name) and (target.id in self.own or level < KEPT):
            self.levels[target.id] = level
            self.most |= Counter({target.id: level})
            self.parts[target.id] = _root(value) if isinstance(value, (ast.Name, ast.Attribute, ast.Subscript)) else ""
        elif target is not None:
            if isinstance(target, ast.Subscript) and self._value(target.slice) >= KEPT:
                level = UNSIZED if self._value(target.value) >= KEPT else CHOSEN  # perhaps places of a tensor
            is_own = self._change(target, level) and isinstance(target, ast.Subscript)
            if level == CHOSEN or (level >= KEPT and not is_own):
                raise _DecidesError

    def _change(self, node: ast.expr, level: int) -> bool:
        """Give a level to what an object is a part of; whether that is the function's own."""
        names = [name := _root(node), self.parts.get(name, "")]
        changed = Counter(dict.fromkeys({*names} - {"", "self"}, level))
        self.levels, self.most = self.levels | changed, self.most | changed
        return name in self.own - self.parameters and names[1] not in self.parameters

    def _value(self, node: ast.AST | None) -> int:
        return 0 if node is None else max(self._level(node), 0 if _is_text(node) else self.sources.get(node, 0))

    def _level(self, node: ast.AST) -> int:
        match node:
            case ast.Name():
                return self.levels[node.id]
            case ast.Call():
                return self._call(node)
            case ast.BoolOp() | ast.IfExp():
                asked, *ways = node.values if isinstance(node, ast.BoolOp) else [node.test, node.body, node.orelse]
                level, before = self._value(asked), self.under
                self.under += level >= KEPT
                levels = [self._choice(self._value(one), one) for one in ways]
                self.under = before
                return max(level * isinstance(node, ast.BoolOp), *levels)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                before, is_less = self.under, False
                for part in node.generators:
                    self._set(part.target, min(level := self._value(part.iter), UNSIZED))
                    is_less |= level >= UNSIZED or max(map(self._value, part.ifs), default=0) >= KEPT
                    self.under = before + is_less
                level = max(self._value(getattr(node, name, None)) for name in ("key", "value", "elt"))
                is_less |= level >= KEPT and isinstance(node, (ast.SetComp, ast.DictComp))
                self.under = before
                return max(level, UNSIZED * is_less)
            case ast.NamedExpr():
                self._set(node.target, level := self._value(node.value), node.value)
                return level
        level = max(map(self._value, ast.iter_child_nodes(node)), default=0)
        is_missing = isinstance(node, ast.Compare) and all(isinstance(one, (ast.Is, ast.IsNot)) for one in node.ops)
        if _is_text(node) or (is_missing and level < CHOSEN):
            return 0
        if isinstance(node, ast.Subscript) and self._value(node.slice) >= KEPT:
            level = UNSIZED if self._value(node.value) >= KEPT else CHOSEN
        is_handed_on = isinstance(node, (ast.Tuple, ast.List, ast.Dict, ast.keyword, ast.Starred))
        is_given = isinstance(node, (ast.Yield, ast.YieldFrom)) and (level >= KEPT or self.under)
        if is_given or (level == CHOSEN and not is_handed_on):
            raise _DecidesError
        if isinstance(node, ast.Attribute) and node.attr in NAMES["shapes"]:
            return KEPT * (level == UNSIZED)
        is_set = isinstance(node, ast.Set) or (isinstance(node, ast.Dict) and any(map(self._value, node.keys)))
        is_set |= isinstance(node, ast.BinOp) and bool({type(node.left), type(node.right)} & {ast.List, ast.Tuple})
        return max(level, UNSIZED * (is_set and level >= KEPT))

    def _call(self, node: ast.Call) -> int:
        name, root, given = _name(node), _root(node.func), [*node.args, *(one.value for one in node.keywords)]
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        if name in FINITE or name == "save" or _shows(name) or _is_text(node):
            for one in given if self.under and name != "save" else ():  # what they call is called, or not
                self._value(one)
            return 0
        own, levels = self._value(node.func if of is None else of), [self._value(one) for one in given]
        level = max(own, most := max(levels, default=0))
        for one in given if level >= KEPT else ():  # functions that are given such values there
            if isinstance(one, ast.Lambda):
                self.levels |= Counter(dict.fromkeys((part.arg for part in one.args.args), min(level, UNSIZED)))
                self._value(one.body)
            elif name in {"map", "filter"} and one is given[0]:
                self._call(ast.Call(func=one, args=given[1:], keywords=[]))
        if level < KEPT and not self.under:
            if level and of is not None and name in NAMES["changing"]:
                self._change(of, level)
            return KEPT if level and root in {"torch", "np", "numpy", "math"} else level  # which follow no number
        is_name = isinstance(node.func, ast.Name) or ast.unparse(node.func) == f"self.{name}"
        defined = self._defined(name) if is_name else []
        if len(defined) == 1:
            return self._enter(node, levels, *defined[0])
        self.is_number |= name in WHOLE
        if level < KEPT and name in NAMES["on_host"]:
            return 0
        if level == KEPT and (name in NAMES["parting"] or (name == "where" and len(given) == 1)):
            level = UNSIZED
        is_size = (name in NAMES["sizing"] and most >= KEPT) or (name == "get" and own < KEPT)
        is_sent = level == UNSIZED and (root == "torch" or name in {"to", "cuda", "tensor"})
        is_known = name in HARMLESS | NAMES["parting"] | NAMES["counting"] | NAMES["asking"]
        is_followed = not (self.under or self.is_number or level > KEPT)
        if level < KEPT or level == CHOSEN or is_size or is_sent or not (is_known or is_followed):
            raise _DecidesError
        if name in NAMES["changing"] and of is not None:
            self._change(of, UNSIZED if self.under else level)
        if name in NAMES["asking"]:
            return KEPT * (level == UNSIZED)
        return KEPT if name in NAMES["counting"] else level

    def _defined(self, name: str) -> list[tuple[str, ast.Module, Any]]:
        """The functions of that name in its file, and in files next to a job's own from which that imports the name."""
        trees = {self.path: self.tree}
        for one in ast.walk(self.tree) if PACKAGES not in self.path else ():
            if isinstance(one, ast.ImportFrom) and {name, "*"} & {each.name for each in one.names}:
                for folder in Path(self.path).parents[:3]:
                    file = f"{folder.joinpath(*(one.module or '').split('.'))}.py"
                    trees[file] = parsed(_text(file))
        nodes = ((path, tree, one) for path, tree in trees.items() for one in ast.walk(tree))
        return [(path, tree, one) for path, tree, one in nodes if isinstance(one, _Named) and one.name == name]

    def _enter(self, node: ast.Call, levels: list[int], path: str, tree: ast.Module, function: ast.FunctionDef) -> int:
        if self.depth == MOST_CALLS:
            raise _DecidesError
        course = Course(tree, function, path, is_number=self.is_number, depth=self.depth + 1)
        places = [*function.args.posonlyargs, *function.args.args][isinstance(node.func, ast.Attribute) :]
        called = [*(one.arg for one in places[: len(node.args)]), *(one.arg or "" for one in node.keywords)]
        is_open = any(isinstance(one, ast.Starred) for one in node.args) or function.args.vararg or function.args.kwarg
        course.levels = Counter(dict.fromkeys(course.parameters, max(levels, default=0)))
        if len(called) == len(levels) and not is_open:
            course.levels = Counter(dict(zip(called, levels, strict=True)))
        course.most, course.under = Counter(course.levels), self.under
        course.follow()
        return course.returned


def _root(node: ast.expr | None) -> str:
    """The name that a chain of attributes, places and calls begins with: `a` in `a.b[c].d()`."""
    while isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _place(tree: ast.Module, line: int) -> tuple[ast.stmt | None, _Function]:
    """The innermost statement at a line, if it is one (of a compound one its head), and the function around it."""
    statement: ast.stmt | None = None
    function: _Function = tree
    for node in ast.walk(tree):  # outer ones first
        is_head = isinstance(statement, (ast.If, ast.While)) and statement.lineno == line
        if isinstance(node, ast.stmt) and not is_head and node.lineno <= line <= (node.end_lineno or node.lineno):
            if statement is not None and not hasattr(statement, "body") and not hasattr(statement, "cases"):
                return None, function
            statement = node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function = node
    return statement, function


@lru_cache(maxsize=64)
def _text(path: str) -> str:
    try:
        return read_plain(Path(path), JOB_FILE).decode(errors="replace")
    except UserError:
        return "?"
