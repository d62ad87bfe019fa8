"""A card's counters and XID errors, read by the agent's own reader through the library that pynvml has loaded."""

from collections.abc import Callable

import msgspec
import pynvml

from vramtui.agent.counters import CardCounters
from vramtui.core.observation.limits import is_possible
from vramtui.core.observation.readings import Absence, XidError
from vramtui.sources.nvml.calls import Absences, Caller, Device, Fields

_XIDS = "xid_errors"


def counters_of(caller: Caller, clock: Callable[[], float], former: CardCounters | None = None) -> CardCounters:
    """A reader that asks as `caller`, so that a call which hangs has its name.

    Args:
        caller: of the same card.
        clock: seconds, of which only differences matter.
        former: the one before the driver was initialised anew; its errors are kept.
    """
    return CardCounters(_ask_as(caller), clock, None if former is None else list(former.xids))


def read_counters(counters: CardCounters, device: Device) -> tuple[Fields, Absences]:
    """What the card counts, and why some of it is not known.

    Raises:
        DeviceGoneError, DriverGoneError: as `Caller.ask`.
    """
    told, reasons = counters.read(device)
    if _XIDS in told:
        told[_XIDS] = msgspec.convert(told[_XIDS], tuple[XidError, ...])
    values = {name: value for name, value in told.items() if is_possible(name, value)}
    absent = {name: Absence(why) for name, why in reasons.items()}
    return values, absent | dict.fromkeys(told.keys() - values.keys(), Absence.FAILED)


def _ask_as(caller: Caller) -> Callable[..., int]:
    def ask(name: str, *arguments: object) -> int:
        caller.call = name
        function = getattr(pynvml.nvmlLib, name, None)
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if function is None else int(function(*arguments))
        caller.raise_if_gone(name, code)
        return code

    return ask
