"""Follows tensors through the phases of a few steps, in whole blocks: what is held, since when, and the peak."""

from dataclasses import dataclass
from math import prod

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.estimate.estimate import Moment, Phase
from vramtui.core.estimate.ledger import Category
from vramtui.estimators.rules.base import ALWAYS, RuleSheet, block_bytes
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK

EXPERIMENTS = "Simple GPU memory allocation experiments every ML engineer should do (medium.com/@akhilez, 2024)"


@dataclass
class _Tensor:
    line: Category
    size: int
    formula: str
    lifetime: str


class RuleEvents:
    """A record of holding and letting go. Only what is held after each event counts, as the published tables count."""

    def __init__(self) -> None:
        self._tensors: dict[str, _Tensor] = {}
        self._held: list[str] = []
        self._peak_here = 0
        self._peak: tuple[int, tuple[str, ...], Phase, int] = (0, (), "build", 0)
        self._waiting = True
        self.timeline: list[Moment] = []

    @property
    def allocated(self) -> int:
        """Bytes held now."""
        return sum(self._tensors[name].size for name in self._held)

    def tensor(self, name: str, line: Category, shape: tuple[int, ...], dtype: str, lifetime: str = ALWAYS) -> None:
        """Hold a tensor of `shape`, in whole blocks."""
        size = prod(shape) * ITEM_BYTES[dtype]
        blocks = block_bytes(size) // MIN_BLOCK
        numbers = " x ".join(str(side) for side in shape) or "1"
        formula = f"{numbers} x {ITEM_BYTES[dtype]} B = {size:,} B, so {blocks} x {MIN_BLOCK} B"
        self.hold(name, line, block_bytes(size), formula, lifetime)

    def hold(self, name: str, line: Category, size: int, formula: str, lifetime: str = ALWAYS) -> None:
        """Hold `size` bytes under `name`; a name let go before may be held again."""
        self._tensors[name] = _Tensor(line, size, formula, lifetime)
        self._held.append(name)
        self._peak_here = max(self._peak_here, self.allocated)

    def free(self, *names: str) -> None:
        """Let go of what is held of `names`."""
        self._held = [name for name in self._held if name not in names]

    def mark(self, phase: Phase, step: int = 0) -> None:
        """The end of a phase."""
        categories: dict[str, int] = {}
        for name in self._held:
            tensor = self._tensors[name]
            categories[tensor.line] = categories.get(tensor.line, 0) + tensor.size
        self.timeline.append(
            Moment(
                phase=phase,
                step=step,
                allocated=self.allocated,
                peak_allocated=self._peak_here,
                categories=categories,
            )
        )
        if self.allocated > self._peak[0]:
            self._peak = (self.allocated, tuple(self._held), phase, step)
        self._peak_here = self.allocated

    def sheet(self, source: str, *assumptions: str) -> RuleSheet:
        """The parts of everything ever held; those alive at the largest mark make the total."""
        _, alive, phase, step = self._peak
        sheet = RuleSheet(
            source, phase, "Counted at the end of each phase; what lives only inside one is not.", *assumptions
        )
        sheet.step = step
        sheet.timeline = self.timeline
        for name, tensor in self._tensors.items():
            sheet.add(
                name,
                tensor.line,
                tensor.size,
                tensor.formula,
                at_peak=tensor.size if name in alive else 0,
                lifetime=tensor.lifetime,
                blocks=tensor.size // MIN_BLOCK,
            )
        return sheet
