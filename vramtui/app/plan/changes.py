"""The single changes to a cell's variant that free memory, and which of them is chosen."""

from collections.abc import Iterable

from vramtui.core.base.units import MIB
from vramtui.estimators.planner.planner import Edge, Effect

# Less than this, or than so small a share of the process, is nothing that anybody would change a job for.
LEAST, LEAST_SHARE = 16 * MIB, 0.002


def worthwhile(effects: Iterable[Effect], process: int | None, edges: tuple[Edge, ...]) -> tuple[Effect, ...]:
    """Those that free something, most first; then those with which a larger size fits.

    Args:
        effects: of every change.
        process: bytes of the process without them.
        edges: the largest sizes without them; an effect's own `largest` is of the first.
    """
    least = max(LEAST, (process or 0) * LEAST_SHARE)
    before = edges[0].largest or 0 if edges else None
    kept = [effect for effect in effects if effect.frees >= least or _gains(effect, before)]
    return tuple(sorted(kept, key=lambda effect: (-effect.frees if effect.frees >= least else 0, -gained(effect))))


def gained(effect: Effect) -> int:
    """The largest size that fits with a change, where that was looked for; else 0."""
    return effect.largest or 0


def _gains(effect: Effect, before: int | None) -> bool:
    return before is not None and gained(effect) > before


class Choice:
    """Which change has the cursor; known by its name, so that it stays when more of them are found out."""

    def __init__(self) -> None:
        self._name = ""

    def at(self, shown: tuple[Effect, ...]) -> int:
        """Its place; the first until one is chosen."""
        return next((at for at, effect in enumerate(shown) if effect.mitigation == self._name), 0)

    def go(self, shown: tuple[Effect, ...], at: int) -> None:
        """Choose the one at a place; it stops at both ends."""
        if shown:
            self._name = shown[max(0, min(at, len(shown) - 1))].mitigation

    def forget(self) -> None:
        """Back to the first."""
        self._name = ""
