"""EXL3's linear layers by the bits that a config says (exllamav3 0.0.x, modules/quant/exl3.py).

Each is kept as a trellis of `bits` bits a weight and two vectors of fp16, one number for each row and each column. The
embedding, norms, routers and towers stay as they were. Bits may be a mean: some layers have one more than others.
"""

from collections.abc import Iterable, Iterator
from math import floor
from typing import Any

from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError

METHOD = "exl3"
# What exllamav3 quantises to.
LEAST, MOST = 1.0, 8.0
SCALES, SCALE_BITS, UNQUANTIZED = "exl3_scales", 16, 16
KEPT = ("router", "conv_")


def exl3_tensors(groups: Iterable[Table], config: Fields) -> list[Table]:
    """The tensors of a model with those of its linear layers as EXL3 keeps them.

    Args:
        groups: as a `[model]` table lists them.
        config: the quantization_config.

    Raises:
        DamagedError: it says no bits, or bits that EXL3 has not.
    """
    bits = config.number("bits", None)
    head = config.number("head_bits", 6)
    for width in (bits, head):
        if width is None or not LEAST <= width <= MOST:
            raise DamagedError(f"has quantization_config.bits or head_bits other than {LEAST:g} to {MOST:g}")
    tables: list[Table] = []
    for group in groups:
        tables += _stored(group, head if group["name"] == "lm_head" else bits)
    return tables


def _stored(group: Table, bits: float) -> Iterator[Table]:
    shape: tuple[Any, ...] = tuple(group["shape"])
    linear = group.get("place", "layers") == "layers" or group["name"] == "lm_head"
    if len(shape) < 2 or not linear or group["name"].rpartition(".")[2].startswith(KEPT):
        yield group | {"bits": UNQUANTIZED}
        return
    count = group.get("count", 1)
    more = round((bits - floor(bits)) * count)
    for number, each in ((count - more, floor(bits)), (more, floor(bits) + 1)):
        if number:
            yield group | {"count": number, "bits": each}
    scales = (*shape[:-2], shape[-2] + shape[-1])
    yield group | {"name": f"{group['name']}.{SCALES}", "shape": list(scales), "bits": SCALE_BITS}
