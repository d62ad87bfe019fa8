"""The verdict on a predicted process and a card, with its sentence, for screens, commands and exit codes.

A prediction has a stated error. One that is below the card's memory by less than that error is *tight*: it may or may
not fit. One that is above it does not fit.
"""

from typing import Literal

import msgspec

from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.estimate.devices import Device, emulation_note
from vramtui.core.estimate.estimate import USUAL_ERROR, Estimate
from vramtui.core.schema.workload import Workload

FitVerdict = Literal["fits", "tight", "does not fit", "unknown"]
# From here on a difference is written in GiB like the two sizes it stands beside; "0.0 GiB" would say nothing.
SMALLEST_IN_GIB = 0.05 * GIB
SIGNS: dict[FitVerdict, str] = {"fits": "✓", "tight": "!", "does not fit": "✗", "unknown": "?"}


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The need of a process compared with the memory of a card.

    Attributes:
        needs: bytes of the predicted process at its peak.
        has: bytes of the card that it can have.
        error: the stated relative error of `needs`, as a fraction; None when it was never measured.
        note: what else there is to say, a sentence without a full stop; may be empty.
        refused: the engine does not start with these settings, whatever the card holds.
        unknown: unknown properties of the job that prevent a verdict; may be empty.
    """

    needs: int
    has: int
    error: float | None = None
    note: str = ""
    refused: bool = False
    unknown: str = ""

    @property
    def verdict(self) -> FitVerdict:
        """`tight` where the stated error could take it beyond the card; `unknown` where nothing is known."""
        if self.unknown:
            return "unknown"
        if not self.is_enough:
            return "does not fit"
        return "tight" if self.needs * (1 + self._error) > self.has else "fits"

    @property
    def is_enough(self) -> bool:
        return not self.refused and fits_in(self.needs, self.has)

    @property
    def spare(self) -> int:
        """Bytes that are left; negative where it does not fit."""
        return self.has - self.needs

    @property
    def sign(self) -> str:
        """One character that tells the verdict without a colour."""
        return SIGNS[self.verdict]

    @property
    def sentence(self) -> str:
        """`needs 80.0 GiB, has 79.2 GiB: 0.8 GiB short`, and why it is tight."""
        if self.refused:
            return self.note or "it does not start with these settings"
        size = abs(self.spare)
        text = f"{size / GIB:.1f} GiB" if size >= SMALLEST_IN_GIB else format_bytes(size)
        difference = f"{text} {'short' if self.spare < 0 else 'spare'}"
        words = f"needs {format_bytes(self.needs)}, has {format_bytes(self.has)}: {difference}"
        if self.unknown:
            return f"{words}, as far as it is read; {self.unknown}"
        if self.verdict == "tight":
            words += f", and it may need up to {self._error:.0%} more".replace("%", " %")
        return f"{words}; {self.note}" if self.note else words

    def line(self, where: str) -> str:
        """`✓ fits H100: needs …`: the verdict on the card called `where`, with its sign and sentence."""
        return f"{self.sign} {self.headline(where)}: {self.sentence}"

    def headline(self, where: str) -> str:
        """`fits H100`, `tight on H100`, `does not fit H100`, `unknown whether it fits H100`."""
        if self.verdict == "unknown":
            return f"unknown whether it fits {where}"
        return f"tight on {where}" if self.verdict == "tight" else f"{self.verdict} {where}"

    @property
    def _error(self) -> float:
        return USUAL_ERROR if self.error is None else self.error


PAGED = "paged optimizer states"  # a part outside PyTorch's allocator, in managed memory


def fit_on(estimate: Estimate, workload: Workload, device: Device) -> Fit:
    """The verdict on a job that has the card to itself; paged states move to the host where they do not fit."""
    needs, note = estimate.process, emulation_note(workload, device)
    paged = sum(part.bytes for part in estimate.parts if part.name == PAGED)
    if paged and needs > device.total_memory >= needs - paged:
        needs, note = needs - paged, f"{format_bytes(paged)} of paged optimizer states move to host memory"
    return Fit(
        needs=needs, has=device.total_memory, error=estimate.error, note=note, unknown=unknown_of(workload.model)
    )


def fit_beside_others(needs: int, total: int, free: int | None, error: float | None, where: str) -> Fit:
    """The verdict on a card that others hold some of.

    Args:
        needs: bytes of the predicted process.
        total: bytes of the card.
        free: bytes of it that others do not hold now; None when not known.
        error: the stated relative error of `needs`.
        where: the card as people call it, `GPU 0`.
    """
    empty = Fit(needs=needs, has=total, error=error)
    if free is None or free >= total:
        return empty
    now = Fit(needs=needs, has=free, error=error)
    if not empty.is_enough:
        return empty
    if now.is_enough:
        return now
    return msgspec.structs.replace(now, note=f"would fit {where} if empty")


def fits_in(needs: int, has: int) -> bool:
    """Return whether so many bytes are enough, tight or not; used by exit codes and searches for the largest batch."""
    return needs <= has


def unknown_of(model: object) -> str:
    """Unknown properties of a model that prevent a verdict; may be empty."""
    if getattr(model, "basis", "") != "generic":
        return ""
    return "its architecture or quantization is not known"
