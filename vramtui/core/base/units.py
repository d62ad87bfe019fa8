"""Bytes and times as text, and sizes read back from text. Nothing else in the core knows a unit."""

import re

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import shortened

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
LARGEST_SIZE = (1 << 60) - 1  # bytes: a thousand times the memory of the largest host there is
UNKNOWN = "–"
QUICK = "≈"  # before a figure that a nearer one will replace
# Bytes of one number, by torch's name of its type (`torch.dtype.itemsize`).
TORCH_ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "int64": 8, "int32": 4, "int16": 2,
    "int8": 1, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8,
}  # fmt: skip
_SHORT = {
    "fp64": "float64", "fp32": "float32", "tf32": "float32", "bf16": "bfloat16", "fp16": "float16",
    "int64": "int64", "int8": "int8", "bool": "bool",
}  # fmt: skip
# The same by the names that presets and papers have; what is multiplied in tf32 is kept in fp32.
ITEM_BYTES = {short: TORCH_ITEM_BYTES[name] for short, name in _SHORT.items()}

_BINARY = (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
_SUFFIXES = {
    "": 1, "b": 1,
    "k": KIB, "m": MIB, "g": GIB, "t": TIB,
    "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_SIZE = r"(?i)\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*"


def format_bytes(count: int | None, digits: int = 1) -> str:
    """A byte count in the largest binary unit that keeps it at or above 1: `15.0 GiB`, `8.1 MiB`, `512 B`."""
    if count is None:
        return UNKNOWN
    for suffix, unit in _BINARY:
        if abs(count) >= unit:
            return f"{count / unit:.{digits}f} {suffix}"
    return f"{count} B"


def format_short(count: int) -> str:
    """Bytes in at most eight columns up to 9999 TiB: `8.1 MiB`, `250 KiB`."""
    text = format_bytes(count)
    return text if len(text) <= 8 else format_bytes(count, 0)


def unit_of(top: int) -> tuple[int, str]:
    """The unit for a table whose largest figure is `top` bytes, and its name; KiB up to 10 MiB, where blocks count."""
    return (GIB, "GiB") if top >= GIB else (MIB, "MiB") if top >= 10 * MIB else (KIB, "KiB")


def format_in(count: int | None, unit: int) -> str:
    """A byte count as a bare number of `unit`, for columns whose heading holds the unit.

    One that would stand there as 0.0 is written in its own unit, by its name, in eight columns at most: `30.0`,
    `4.0 MiB`, `512 KiB`, `0 B`.
    """
    return UNKNOWN if count is None else f"{count / unit:.1f}" if 20 * abs(count) >= unit else format_short(count)


def format_column(count: int | None, unit: int) -> str:
    """A byte count as a bare number of `unit`, the same for every figure of a column: `15.02`, `0.04`, `<0.01`, `0`;
    less than nothing `-4.15`, `-<0.01`.
    """
    if count is None:
        return UNKNOWN
    if count == 0:
        return "0"
    small = "<0.01" if count > 0 else "-<0.01"
    return small if abs(count / unit) < 0.005 else f"{count / unit:.2f}"


def format_gib(count: int | None, digits: int = 1) -> str:
    """A byte count as a bare number of GiB, for columns whose heading holds the unit."""
    return UNKNOWN if count is None else f"{count / GIB:.{digits}f}"


def narrow_digits(count: int) -> int:
    """Decimals of `format_gib_narrow`: hundredths of what tenths of a GiB would hardly show.

    With hundredths up to a whole GiB twice as much went to the terminal, for figures that move all the time.
    """
    return 2 if count and abs(count) < 0.095 * GIB else 1


def format_gib_narrow(count: int | None, as_of: int = 0) -> str:
    """A byte count as a bare number of GiB, with hundredths where it, or `as_of`, is less than a tenth: `75.6`, `0.1`,
    `0.05`.
    """
    return UNKNOWN if count is None else format_gib(count, narrow_digits(as_of or count))


def format_percent(fraction: float | None, digits: int = 1) -> str:
    """A signed percentage with a true minus sign: `+2.5 %`, `−0.5 %`, `0.0 %`."""
    if fraction is None:
        return UNKNOWN
    text = f"{abs(fraction) * 100:.{digits}f} %"
    return text if float(text[:-2]) == 0 else ("+" if fraction > 0 else "−") + text


def format_duration(seconds: float | None) -> str:
    """A span of time in the two largest units: `42 s`, `3 m 05 s`, `2 h 14 m`, `3 d 04 h`."""
    if seconds is None:
        return UNKNOWN
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86400} d {whole % 86400 // 3600:02d} h"


def is_size(text: str) -> bool:
    """Return whether `text` is a number with a unit: `24GiB`, `80g`."""
    match = re.fullmatch(_SIZE, text)
    return match is not None and match[2] != "" and match[2].lower() in _SUFFIXES


def asked_size(text: str) -> int:
    """Parse a size that somebody typed; a small number without a unit is refused as a slip. Raises UserError if the
    text is not a size, or has no unit.
    """
    size = parse_size(text)
    if 0 < size < MIB and text.strip().isdigit():
        raise UserError(f"{text.strip()} would be bytes; write {text.strip()}GB or {text.strip()}GiB")
    return size


def parse_size(text: str) -> int:
    """Bytes from text such as `24GiB`, `24 GB`, `512`, `1.5g`; a bare letter means the binary unit. Raises UserError if
    the text is not a size.
    """
    match = re.fullmatch(_SIZE, text)
    unit = _SUFFIXES.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise UserError(f"{shortened(text)!r} is not a size; write it like 24GiB, 512MiB or 80GB")
    size = float(match[1]) * unit
    if size > LARGEST_SIZE:
        raise UserError(f"{shortened(text)} is more memory than any host has; write it like 24GiB, 512MiB or 80GB")
    return round(size)
