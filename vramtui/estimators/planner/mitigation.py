"""One change to a job, with its price."""

from collections.abc import Mapping
from typing import Any

import msgspec

# What a mitigation weighs in the choice of the cheapest set. The steps are wide, so that a few of one sort do not
# outweigh one of the next.
FREE = 1
SLOWER = 4
LOWER_PRECISION = 12
OTHER_RESULT = 40


class Mitigation(msgspec.Struct, frozen=True, kw_only=True):
    """One change.

    Attributes:
        name: what it is called in a table.
        changes: the values it sets, by dotted key as in a preset.
        weight: what it costs beside other mitigations; only the order and the sums matter.
        cost: what one pays for it, in words.
    """

    name: str
    changes: dict[str, Any]
    weight: int
    cost: str


def make_mitigation(name: str, weight: int, cost: str, changes: Mapping[str, Any]) -> Mitigation:
    """A mitigation."""
    return Mitigation(name=name, changes=dict(changes), weight=weight, cost=cost)
