import re
from collections import Counter
from collections.abc import Iterator

from tests.loaded_once import bundled_presets
from tests.tables import rows
from vramtui.api import estimate
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Part
from vramtui.estimators.methods import estimates_by

# Words that may stand between the factors of a formula; a formula with any other word is a sentence.
NOUNS = """
    B parameters layers tokens heads latent rotary gradients trained frozen images in parts below
    that pass through at the fullest moment by which blocks are larger
"""
HUB_NAMES: list[str] = rows(__file__, "hub_names")


def value_of(formula: str) -> float | None:
    text = re.sub(r"^[^;()]*?: (?=\d)", "", formula)  # "adamw: both moments: 2 x …"
    names = re.compile(r"(?<= B) \([^()]*\)")  # "4,096 x 2 B (queries, keys)"
    remark = re.compile(r"; .*|, [a-z].*")  # "… x 2 B, each tensor in blocks of 512 B"
    text = names.sub("", text) if names.search(text) else remark.sub("", text)
    if set(re.findall(r"[A-Za-z][\w/'-]*", text.replace(" x ", " "))) - set(NOUNS.split()):
        return None
    text = re.sub("[A-Za-z]+", "", re.sub(r"(?<=\d),(?=\d)", "", text.replace(" x ", " * ")))
    if not re.search(r"\d +\*", text) or not re.fullmatch(r"[\d.*+() -]+", text):
        return None
    return float(eval(text))  # noqa: S307 - digits and operators only, as matched


def wrong(name: str, parts: tuple[Part, ...], evaluated: Counter[str]) -> Iterator[str]:
    for part in parts:
        if (value := value_of(part.formula)) is not None:
            evaluated[part.line] += 1
            if abs(value - part.bytes) > 512 * max(part.count, 1):
                yield f"{name}: {part.name}: {part.formula} is {value:,.0f}, not {part.bytes:,}"


def test_formulas_of_bundled_presets_and_of_sixty_names() -> None:
    evaluated: Counter[str] = Counter()
    found: list[str] = []
    for file in bundled_presets():
        try:
            estimates = estimates_by("analytic", file.preset.workload, card("B200"))
        except UserError:
            continue  # known by another method only
        for one in estimates:
            found += wrong(file.key, one.parts, evaluated)
    assert found == []
    assert sum(evaluated.values()) > 450
    assert set(evaluated) >= {"weights", "gradients", "activations", "kv_cache"}
    evaluated, found, answered = Counter(), [], set()
    for name in HUB_NAMES:
        for kind in ("infer", "train"):
            try:
                parts = estimate(name, kind=kind, gpu="B200", method="analytic").parts
            except UserError:
                continue  # an encoder does not generate, mxfp4 is not trained
            answered.add(name)
            found += wrong(f"{name} {kind}", parts, evaluated)
    assert found == []
    assert len(answered) >= 60, set(HUB_NAMES) - answered
    assert sum(evaluated.values()) > 500
    assert value_of("12 x (2 x 4,096 x 2 B (queries, keys) + 64 x 4 B (1/σ))") == 12 * (2 * 4096 * 2 + 64 * 4)
    assert value_of("60 layers x 4 x 4,607 tokens x (512 latent + 64 rotary) x 2 B") == 60 * 4 * 4607 * 576 * 2
    assert value_of("2 blocks, the one at work and the next, of 1,711,308,800 B each") is None
