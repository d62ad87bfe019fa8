"""The answer of a healthy job's condition that guards a way out: an error, an early return, the end of a loop.

What kernels should have computed reads as zeros on an emulated card. A job that works does not raise, and it does not
leave at the first sight: `if torch.all(labels == -100): return 0`, `if finished.all(): break`, `if not mask.any():
continue`. So the way is not taken, and what is done is the longer one, of more memory: `while error > bound` has its
first turn, and no second. What an `assert` asks holds.
"""

from __future__ import annotations

import ast
import bisect
import functools
import itertools
import linecache
import math
import sys
from typing import Any

from .reads import MOST_TURNS, OWN

_LEAVING = (ast.Break, ast.Return)
FAILING = ("fail", "raise", "error", "abort")  # in the names of functions that end in an error
DRAWING = "_no_grad_trunc_normal_"  # it draws again what is out of bounds (torch/nn/init.py, 2.13)
_ASSERTING = ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT AssertionError")  # the latter from 3.14 on
# Between the instruction that asks and the jump, or behind it: nothing that a value hangs on (dis, Python 3.9 to 3.13).
_PASSED_OVER = ("CACHE", "EXTENDED_ARG", "NOT_TAKEN", "TO_BOOL")


def _by_place(act: Any) -> Any:
    """Ask once for each file, code, instruction and line of frames."""
    known = functools.lru_cache(maxsize=4096)(act)
    return functools.wraps(act)(
        lambda frame: known(frame.f_code.co_filename, frame.f_code, frame.f_lasti, frame.f_lineno)
    )


def answer_guards(ask: Any, reads: Any, values: Any) -> Any:
    """Return a function that answers a tensor's truth as PyTorch's own if it is known, else as a healthy job has it."""

    @functools.wraps(ask)
    def tell_truth(asked: Any) -> bool:
        tensor = getattr(asked, "_local_tensor", asked)  # a DTensor's share of it is what holds a value
        is_unknown = tensor.is_cuda or (values.guessed_on_host and values.is_plain(tensor) and values.is_guess(tensor))
        if not is_unknown or not values.is_plain(tensor) or tensor.numel() != 1:
            return bool(ask(asked))
        if tensor.is_cuda and (values.is_guess(tensor) & values.rows or values.value_of(tensor) is not None):
            return bool(ask(asked))
        if not reads.holds and values.is_guess(tensor):
            return bool(ask(asked))
        who = sys._getframe(1)  # noqa: SLF001 - who asks has no other name
        while who.f_back is not None and who.f_code.co_filename.startswith(OWN):
            who = who.f_back
        before = reads.count
        if values.is_guess(tensor) & values.zero and loop_lines(who.f_code.co_filename).get(who.f_lineno):
            values.forget(tensor)  # for a loop ends at its second turn, or after some
        truth = truth_of(who, lambda: bool(ask(asked)), reads.count_here, is_torch=reads.is_of_torch(who))
        return truth if reads.count == before else reads.truth_in_this_run(reads.last, truth, who)

    return tell_truth


def truth_of(frame: Any, ask: Any, note: Any, *, is_torch: bool, goes_other_way: bool = False) -> bool:
    """The truth of an unknown value for `frame`; `ask` reads it if both ways may be, `note` notes a guess."""
    if (way := way_of(frame, is_torch=is_torch)) is None:
        before, answer = TURNS.asked, bool(ask())
        return answer != (TURNS.asked == before and TURNS.are_over(frame))  # else the number itself has turned
    if way[1]:
        note()
    return way[0] != (way[1] and goes_other_way)


def way_of(frame: Any, *, is_torch: bool) -> tuple[bool, bool] | None:
    """The truth by which `frame` does what a healthy job does, and whether that is a guess; None if both ways may be.
    PyTorch's own code leaves if all is well: torch.testing.
    """
    if (truth := asserted(frame)) is not None:
        return truth, False
    if is_torch and frame.f_code.co_name == DRAWING:
        within, numbers = frame.f_locals.get("p", 1), max(frame.f_locals["tensor"].numel(), 1)
        turns = math.log(numbers) / -math.log(1 - within) if 0 < within < 1 else 0  # until less than one is outside
        return not TURNS.are_over(frame, min(turns, 3)), False  # the later ones hold no more
    if (guard := healthy_answer(frame)) is not None and (guard[1] or not is_torch):
        return guard[0], not guard[1]
    choice = work_of(frame)
    return None if choice is None else (choice != TURNS.are_over(frame), True)


class Turns:
    """Counts what a call asks in lines of a `while` loop, so that a loop ends that waits for an unknown value."""

    def __init__(self) -> None:
        self._call = self.asked = 0
        self._turns: dict[int, int] = {}

    def are_over(self, frame: Any, most: float = MOST_TURNS) -> bool:
        """Return whether the call of `frame` has asked in this line more than `most` times."""
        self.asked += 1
        if frame is None or frame.f_lineno not in loop_lines(frame.f_code.co_filename):
            return False
        if self._call != id(frame):
            self._call, self._turns = id(frame), {}
        turns = self._turns[frame.f_lineno] = self._turns.get(frame.f_lineno, 0) + 1
        return turns > most


TURNS = Turns()


@functools.lru_cache(maxsize=256)
def loop_lines(path: str) -> dict[int, bool]:
    """The lines of each `while` loop of a file, and whether each decides if it goes on."""
    lines: dict[int, bool] = {}
    for loop in (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.While)):
        for line in range(loop.lineno, (loop.end_lineno or 0) + 1):
            lines.setdefault(line, False)
        ways = (node for node in ast.walk(loop) if isinstance(node, ast.If))
        leaving = [
            way.test for way in ways if any(end and isinstance(end[-1], _LEAVING) for end in (way.body, way.orelse))
        ]
        for test in (loop.test, *leaving):
            lines.update(dict.fromkeys(range(test.lineno, (test.end_lineno or test.lineno) + 1), True))
    return lines


@_by_place
def work_of(path: str, code: Any, at: int, line: int) -> bool | None:
    """The truth that leads to work with what the condition names; None if both ways do, or neither."""
    condition = _conditions(path).get(line)
    jump = _jump(code, at)
    if condition is None or jump is None:
        return None
    uses, first, last = condition
    leads = [first <= _line(code, offset) <= last for offset in jump]
    return None if leads[0] == leads[1] else leads[0] == uses


@functools.lru_cache(maxsize=64)
def _conditions(path: str) -> dict[int, tuple[bool, int, int]]:
    """The lines of each `if` one of whose ways works with what the condition names: whether that is the body, and the
    first and last line of the body.
    """
    places: dict[int, tuple[bool, int, int]] = {}
    for node in ast.walk(tree_of(path)):
        if not isinstance(node, ast.If):
            continue
        names = _names(node.test)
        in_body, in_other = (bool(names & set().union(*map(_names, way))) for way in (node.body, node.orelse))
        if in_body != in_other and node.body[0].lineno > (node.test.end_lineno or 0):
            place = in_body, node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno
            places.update(dict.fromkeys(range(node.lineno, (node.test.end_lineno or 0) + 1), place))
    return places


def _names(node: ast.AST) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and one.id not in ("self", "torch", "len")}
    return names | {
        f".{one.attr}"
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "self"
    }


@functools.lru_cache(maxsize=64)
def tree_of(path: str) -> ast.Module:
    return parsed("".join(linecache.getlines(path)))


def parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last where the parser's own stack is full
        return ast.Module(body=[], type_ignores=[])


@_by_place
def healthy_answer(path: str, code: Any, at: int, line: int) -> tuple[bool, bool] | None:
    """The truth that does not lead out, and whether the way out is an error; None if what is asked guards none."""
    guard = _guards(path).get(line)  # equal code may stand in another file
    jump = _jump(code, at)
    if guard is None or jump is None:
        return None
    first, last, is_error = guard
    if is_error is None:  # a loop, which asks again behind its body
        body = [offset for offset, one in _line_starts(code) if first <= one <= last]
        ends = []  # past unconditional jumps
        for offset in jump:
            step = next(iter(steps_after(code, offset)), None)
            is_jump = step is not None and "JUMP" in step.opname and "IF" not in step.opname
            ends.append(int(step.argval) if step is not None and is_jump else offset)
        stays = [at <= end <= max(body, default=0) for end in ends]
        return (stays[0], False) if at < min(body, default=0) and stays[0] != stays[1] else None
    leads = [first <= _line(code, offset) <= last for offset in jump]
    if first == line:  # all in one line
        leads = [jump[0] < jump[1], jump[1] < jump[0]]
    return None if leads[0] == leads[1] else (leads[1], is_error)


def _jump(code: Any, at: int) -> tuple[int, int] | None:
    """The offsets at which the code goes on if the condition at `at` is true, and if it is false."""
    steps = steps_after(code, at)
    if len(steps) < 2 or "JUMP" not in steps[0].opname or "_IF_" not in steps[0].opname:
        return None
    target, following = steps[0].argval, steps[1].offset
    if steps[0].opname.endswith("TRUE"):
        return target, following
    return (following, target) if steps[0].opname.endswith("FALSE") else None


def _line(code: Any, offset: int) -> int:
    starts = _line_starts(code)
    place = bisect.bisect_right(starts, (offset, 1 << 60)) - 1
    return starts[place][1] if place >= 0 else 0


@functools.lru_cache(maxsize=256)
def _line_starts(code: Any) -> tuple[tuple[int, int], ...]:
    import dis  # only where a job asks whether a tensor is true

    return tuple((offset, line) for offset, line in dis.findlinestarts(code) if line)


@functools.lru_cache(maxsize=64)
def _guards(path: str) -> dict[int, tuple[int, int, bool | None]]:
    """The lines of each condition that guards a way out: the first and last of that way, and whether it is an error; of
    one that a loop asks, the first and last of its body, and None.
    """
    guards: dict[int, tuple[int, int, bool | None]] = {}
    _find_guards(tree_of(path), guards, is_endless=False)
    return guards


def _find_guards(node: ast.AST, guards: dict[int, tuple[int, int, bool | None]], *, is_endless: bool) -> None:
    """Those below `node`; where its loop `is_endless` or fails at its end, a healthy job leaves it before."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, name, None)
        if not (block and isinstance(block, list)):
            continue
        call = block[-1].value if isinstance(block[-1], ast.Expr) else None  # in the end `raise`, or `self.fail(…)`
        called = getattr(call.func, "attr", getattr(call.func, "id", "")) if isinstance(call, ast.Call) else ""
        is_failing = isinstance(block[-1], ast.Raise) or any(word in called.lower() for word in FAILING)
        for statement, following in itertools.zip_longest(block, block[1:]):
            within = is_endless
            if isinstance(statement, (ast.For, ast.AsyncFor)):
                within = bool(statement.orelse) or isinstance(following, ast.Raise)
            elif isinstance(statement, (ast.While, ast.FunctionDef, ast.AsyncFunctionDef)):
                within = isinstance(statement, ast.While)
            _find_guards(statement, guards, is_endless=within)
            if isinstance(statement, ast.While):
                body = statement.body[0].lineno, statement.body[-1].end_lineno or 0, None
                guards.update(dict.fromkeys(range(statement.lineno, (statement.test.end_lineno or 0) + 1), body))
            if isinstance(statement, ast.If) and not any(isinstance(one, ast.Or) for one in ast.walk(statement.test)):
                end = statement.body[-1]
                ends = (ast.Continue,) if is_endless or is_failing else (ast.Return, ast.Break, ast.Continue)
                is_choice = isinstance(end, ast.Return) and (following is None or isinstance(following, ast.Return))
                is_error = isinstance(end, ast.Raise)
                if is_error or (isinstance(end, ends) and not statement.orelse and not is_choice):
                    way = statement.body[0].lineno, end.end_lineno or end.lineno, is_error
                    guards.update(dict.fromkeys(range(statement.lineno, (statement.test.end_lineno or 0) + 1), way))


@_by_place
def asserted(_path: str, code: Any, at: int, _line: int) -> bool | None:
    """The truth of what a frame asks at this moment by which an `assert` statement does not fail; None if none asks."""
    steps = [next(iter(steps_after(code, offset)), None) for offset in _jump(code, at) or ()]
    fails = [step is not None and f"{step.opname} {step.argrepr}".strip() in _ASSERTING for step in steps]
    return fails[1] if any(fails) and not all(fails) else None


def steps_after(code: Any, at: int) -> list[Any]:
    """The instructions from `at` on; without the one there that asks: `bool(…)`, or a number's comparison."""
    import dis  # only where a job asks whether a tensor is true

    steps = [step for step in dis.get_instructions(code) if step.offset >= at and step.opname not in _PASSED_OVER]
    return steps[1:] if steps and steps[0].opname.startswith(("CALL", "COMPARE_OP")) else steps
