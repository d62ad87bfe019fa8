"""The largest batch with which a script that does not fit would, found by running it with smaller ones."""

import ast
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.dryrun.result import LargestBatch

# What scripts and libraries call the number of sequences or images of one forward pass.
FLAGS = {"per_device_train_batch_size", "micro_batch_size", "train_batch_size", "batch_size", "device_batch_size"}
FLAGS |= {"mini_batch_size", "batch", "bs", "b"}
# A trace takes seconds. By then the largest batch is known or, of a batch of hundreds, bounded from both sides.
MOST_TRACES, MOST_SECONDS = 8, 120.0


class BatchFlag(msgspec.Struct, frozen=True, kw_only=True):
    """The flag of a script's batch, its value, and the other arguments; `place` is where it stands among them."""

    flag: str
    value: int
    others: tuple[str, ...]
    place: int
    joined: bool

    def words(self, batch: int) -> tuple[str, ...]:
        return (f"{self.flag}={batch}",) if self.joined else (self.flag, str(batch))

    def arguments(self, batch: int) -> tuple[str, ...]:
        return (*self.others[: self.place], *self.words(batch), *self.others[self.place :])


def batch_flag(words: Sequence[str], option: str | None = None, folder: str = ".") -> BatchFlag | None:
    """The batch's option among a command's words, or the one that its script adds to its parser with a default.

    Raises:
        UserError: the command has no such option with a number behind it.
    """
    for at, word in enumerate(words):
        flag, equals, value = word.partition("=")
        value = value if equals else "".join(words[at + 1 : at + 2])
        is_it = flag == option or (option is None and word.startswith("-") and _is_batch(flag))
        if is_it and re.fullmatch(r"[1-9]\d{0,8}", value):
            others = (*words[:at], *words[at + (1 if equals else 2) :])
            return BatchFlag(flag=flag, value=int(value), others=others, place=at, joined=bool(equals))
    script = next((word for word in words if word.endswith(".py")), None)
    try:
        tree = ast.parse(b"" if script is None else (Path(folder) / script).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        tree = ast.Module([], [])
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") != "add_argument":
            continue
        names = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        wanted = (name for name in reversed(names) if name.startswith("-"))
        flag = next((name for name in wanted if (name == option if option else _is_batch(name))), "")
        default = next((key.value for key in node.keywords if key.arg == "default"), None)
        number = default.value if isinstance(default, ast.Constant) else None
        if flag and isinstance(number, int) and number > 0:
            return BatchFlag(flag=flag, value=number, others=tuple(words), place=len(words), joined=False)
    if option is not None:
        raise UserError(f"--batch-option {option}: the command has no such option with a number")
    return None


def _is_batch(flag: str) -> bool:
    return flag.lstrip("-").replace("-", "_") in FLAGS


def largest_batch(flag: BatchFlag, room: int, needs: Callable[[tuple[str, ...]], int | None]) -> LargestBatch:
    fits: dict[int, int] = {}
    over, until = flag.value, time.monotonic() + MOST_SECONDS
    for _ in range(MOST_TRACES):
        low = max(fits, default=0)
        if over - low <= 1 or time.monotonic() > until:
            break
        batch = min(max(_guess(fits, over, room), low + 1), over - 1)
        if (size := needs(flag.arguments(batch))) is None:
            over = batch
        else:
            fits[batch] = size
    low = max(fits, default=0)
    return LargestBatch(
        flag=flag.flag, largest=low, too_large=over, process=fits.get(low), arguments=" ".join(flag.words(low or 1))
    )


def _guess(fits: dict[int, int], over: int, room: int) -> int:
    """Half; then as much as the room would hold if all of the memory grew with the batch; then along a line."""
    if not fits:
        return over // 2
    low = max(fits)
    if len(fits) == 1:
        return low * room // fits[low]
    before = sorted(fits)[-2]
    grows = (fits[low] - fits[before]) / (low - before)
    return low + int((room - fits[low]) / grows) if grows > 0 else (low + over) // 2


def sentence_of(largest: LargestBatch) -> str:
    if not largest.largest:
        tried = f"{largest.flag} {largest.too_large} does not fit either"
        return f"not even {largest.arguments} fits" if largest.exact else tried
    if largest.exact:
        return f"largest batch that fits: {largest.largest} ({largest.arguments}); {largest.too_large} does not"
    fits = f"a batch of {largest.largest} fits ({largest.arguments})"
    return f"{fits}, {largest.too_large} does not; between them none was tried"
