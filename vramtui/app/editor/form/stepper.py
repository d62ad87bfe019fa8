"""The next value of a field, up or down."""

from vramtui.presets.form.types import FormField

# Numbers go by ones at first, then by rounder steps: from the second figure of each pair on.
STEPS = ((1, 32), (8, 256), (64, 1024), (512, 1 << 14), (4096, 1 << 17), (1 << 16, 1 << 62))
SHARE = 0.05


def stepped(field: FormField, direction: int) -> str | None:
    """The value after (1) or before (-1) the field's own, or its default's; None where there is none."""
    now = field.value if field.value is not None else field.default
    if field.kind == "bool":
        return "false" if now == "true" else "true"
    if field.kind == "choice":
        return _choice(field.choices, now, direction)
    if field.kind == "int":
        return _whole(field, now, direction)
    if field.kind == "float":
        return _share(field, now, direction)
    return None


def _choice(choices: tuple[str, ...], now: str | None, direction: int) -> str | None:
    if not choices:
        return None
    if now not in choices:
        return choices[0 if direction > 0 else -1]
    return choices[(choices.index(now) + direction) % len(choices)]


def _whole(field: FormField, now: str | None, direction: int) -> str | None:
    try:
        value = int((now or "0").replace("_", ""), 0)
    except ValueError:
        return None
    if now is None:
        return str(_least(field))
    step = next(step for step, below in STEPS if abs(value) < below or (abs(value) == below and direction < 0))
    wanted = (value // step + 1) * step if direction > 0 else (-(-value // step) - 1) * step
    lowest = _least(field)
    highest = wanted if field.maximum is None else int(field.maximum) - field.maximum_excluded
    return str(max(lowest, min(highest, wanted)))


def _least(field: FormField) -> int:
    return 0 if field.minimum is None else int(field.minimum) + field.minimum_excluded


def _share(field: FormField, now: str | None, direction: int) -> str | None:
    try:
        value = float((now or "0").replace("_", ""))
    except ValueError:
        return None
    step = SHARE if abs(value) <= 1 else 1.0
    wanted = round(value + direction * step, 6)
    least = None if field.minimum is None else float(field.minimum)
    most = None if field.maximum is None else float(field.maximum)
    if least is not None and (wanted < least or (wanted == least and field.minimum_excluded)):
        return None
    if most is not None and (wanted > most or (wanted == most and field.maximum_excluded)):
        return None
    return repr(wanted)
