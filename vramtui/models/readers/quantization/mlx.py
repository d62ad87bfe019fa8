"""Weights by the bits that MLX's converter writes into a config (mlx-lm 0.31, `quantization`).

Linear layers and embeddings are kept in groups: `affine` ones with a scale and a bias of 16 bits for each group, MXFP4,
NVFP4 and MXFP8 with a scale of 8. Modules listed by name have other bits, or none. Routers and towers are taken as
left as they were.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

from vramtui.models.families.keys import Fields, Table
from vramtui.models.readers.bounded import DamagedError

KEYS = ("quantization", "quantization_config")
MODES = ("affine", "mxfp4", "nvfp4", "mxfp8")
SCALES, UNQUANTIZED = "mlx_scales", 16
LEAST, MOST, WIDEST = 1, 8, 1024
KEPT = ("router", "conv_")
Format = tuple[int, int, bool]  # bits, numbers in a group, whether groups have a bias beside their scale
MOST_LISTED = 20_000


def mlx_quantization(config: Fields) -> Fields | None:
    """The table that MLX's converter wrote; None where it did not write any."""
    for key in KEYS:
        table = config.values.get(key)
        how = Fields(table) if isinstance(table, dict) else Fields({})
        if not how.has("quant_method") and {"bits", "group_size"} <= how.values.keys():
            by_mlx = key == "quantization" or config.has("quantization") or how.text("mode", "") in MODES
            return how if by_mlx else None
    return None


def mlx_tensors(groups: Iterable[Table], how: Fields) -> list[Table]:
    """The tensors of a model by their bits, and their scales.

    Raises:
        DamagedError: it says bits that MLX has not.
    """
    most = _format(how)
    listed: dict[str, Counter[Format | None]] = {}
    for path, settings in list(how.values.items())[:MOST_LISTED]:
        if isinstance(settings, dict) or settings is False:
            other = None if settings is False else _format(Fields({**how.values, **settings}))
            listed.setdefault(_group(path), Counter())[other] += 1
    return [one for group in groups for one in _stored(group, most, listed.get(str(group["name"]), Counter()))]


def _format(how: Fields) -> Format:
    bits, size = how.whole("bits", 0), how.whole("group_size", 0)
    if not (LEAST <= bits <= MOST and 1 <= size <= WIDEST):
        raise DamagedError("has quantization.bits or quantization.group_size that MLX has not")
    return bits, size, how.text("mode", "affine") == "affine"


def _group(path: str) -> str:
    """What a module of MLX is called among a model's tensors."""
    name = path.rpartition(".")[2]
    if "shared_expert" in path:
        return f"shared_{name}"
    if "switch_mlp" in path or ".experts" in path:
        return {"down_proj": "experts_down_proj", "gate_proj": "experts_gate_up_proj"}.get(name, "")
    return name


def _stored(group: Table, most: Format, listed: "Counter[Format | None]") -> Iterator[Table]:
    name, shape, left = str(group["name"]), tuple(group["shape"]), int(group.get("count", 1))
    inside = group.get("place", "layers") == "layers" or name in {"lm_head", "embed_tokens"}
    if len(shape) < 2 or not inside or name.startswith(KEPT):
        yield group | {"bits": UNQUANTIZED}
        return
    for form, count in (*listed.items(), (most, left)):
        taken = min(count, left)
        left -= taken
        if not taken:
            continue
        yield group | {"count": taken, "bits": UNQUANTIZED if form is None else form[0]}
        if form is not None:
            scales = [*shape[:-1], -(-shape[-1] // form[1]) * (2 if form[2] else 1)]
            bits = UNQUANTIZED if form[2] else 8
            yield group | {"name": f"{name}.{SCALES}", "count": taken, "shape": scales, "bits": bits}
