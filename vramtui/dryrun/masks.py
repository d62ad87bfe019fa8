"""Conditions and counts that nobody computes: checks of numbers hold, and as many places of a mask as there can be."""

from __future__ import annotations

import math
from typing import Any

# Checks of numbers, and what they give in a healthy job. `isfinite` compares with itself and with infinity.
NEVER = ("isnan", "isinf", "isposinf", "isneginf")
COMPARISONS = {"eq": True, "ne": False}


# Reductions of numbers that are all the same to that number.
CHOOSING = ("any", "all", "_is_all_true", "_is_any_true", "amax", "amin")


def sound(op: Any, args: Any) -> bool | None:
    """What a check of numbers gives in a healthy job, where nothing is NaN or infinite; None for any other operator."""
    name = op._schema.name.partition("::")[2]  # noqa: SLF001 - PyTorch's own name for it
    if name in NEVER:
        return False
    if name in COMPARISONS and len(args) > 1:
        is_same = args[0] is args[1]
        if is_same or (isinstance(args[1], float) and not math.isfinite(args[1])):
            return COMPARISONS[name] is is_same
    return None


def filled_with(op: Any, args: Any, kwargs: Any) -> Any:
    """The number that an operator fills a tensor with; None if it is not a number."""
    name = op._schema.name.partition("::")[2]  # noqa: SLF001 - as above
    if "zero" in name:
        return 0
    if "one" in name:
        return 1
    at = next(at for at, one in enumerate(op._schema.arguments) if one.name in ("fill_value", "value"))  # noqa: SLF001 - as above
    number = args[at] if at < len(args) else kwargs.get("fill_value", kwargs.get("value"))
    return number if isinstance(number, (bool, int, float)) else None


def alike(op: Any, args: Any) -> bool:
    """What a comparison of whole tensors gives in a healthy job: they are alike if their shapes are."""
    name = op._schema.name.partition("::")[2]  # noqa: SLF001 - as above
    return bool(name in ("equal", "allclose") and args[0].shape == args[1].shape)


def is_reduced(op: Any, sizes: list[int]) -> bool:
    """Return whether an operator gives one of the numbers that it is given, whichever that is."""
    return sizes == [1] and op._schema.name.partition("::")[2] in CHOOSING  # noqa: SLF001 - as above


def takes_places(torch: Any, op: Any) -> bool:
    """Return whether an operator's result has as many places as values say."""
    return getattr(torch.Tag, "dynamic_output_shape", None) in op.tags
