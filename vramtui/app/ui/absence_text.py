"""Why something is not known, in words."""

from vramtui.core.observation.readings import Absence, Reading

WHY: dict[Absence, str] = {
    Absence.NOT_SUPPORTED: "not supported",
    Absence.NO_PERMISSION: "no permission",
    Absence.LOST: "GPU lost",
    Absence.DRIVER_TOO_OLD: "driver too old",
    Absence.NO_ANSWER: "no answer",
    Absence.FAILED: "the driver's answer failed",
}


def why(reading: Reading, metric: str) -> str:
    """Why `metric` is None in `reading`."""
    absence = reading.absent.get(metric)
    return WHY[absence] if absence is not None else "not known"
