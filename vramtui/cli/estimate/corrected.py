"""An estimate beside what it was before this host's runs corrected it."""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import Estimate


class Corrected(msgspec.Struct, frozen=True):
    """An estimate and what it was before; the same one twice where nothing could be corrected."""

    plain: Estimate
    now: Estimate


def side_by_side(made: Sequence[Corrected]) -> list[Estimate]:
    """The estimates to show: alone the corrected one, several as they were with the corrected ones beside them."""
    if len(made) == 1:
        return [made[0].now]
    return [
        one
        for pair in made
        for one in (
            (pair.plain,)
            if pair.now is pair.plain
            else (pair.plain, msgspec.structs.replace(pair.now, method=f"{pair.now.method} calibrated"))
        )
    ]


def uncalibrated_lines(made: Sequence[Corrected]) -> list[str]:
    """What a single estimate was before, a sentence."""
    if len(made) != 1 or made[0].now is made[0].plain:
        return []
    plain = made[0].plain
    context, reserved = format_bytes(plain.ledger.context, 2), format_bytes(plain.reserved, 2)
    return [f"Uncalibrated: CUDA context {context}, reserved {reserved}, process {format_bytes(plain.process, 2)}"]
