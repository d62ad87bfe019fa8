"""Neighbours in a training step's bar are told apart by those without red or green cones, too."""

import pytest

from vramtui.core.base.colours import DARK, LIGHT

# Machado, Oliveira, Fernandes 2009, severity 1.0: what linear RGB looks like without the cone.
SIGHT = {
    "all cones": ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    "no red": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "no green": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
}
TO_XYZ = ((0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041))
WHITE = (0.95047, 1.0, 1.08883)
TOLD_APART = 20.0  # in CIE 1976 L*a*b*; 2.3 is a just noticeable difference of large patches side by side
PAIRS = (
    ("weights", "optimizer"), ("weights", "gradients"), ("gradients", "optimizer"), ("weights", "master-weights"),
    ("optimizer", "master-weights"), ("optimizer", "activations"), ("weights", "activations"),
    ("activations", "temporaries"),
)  # fmt: skip
Triple = tuple[float, float, float]


def times(matrix: tuple[Triple, ...], vector: Triple) -> Triple:
    a, b, c = (sum(weight * value for weight, value in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def lab(colour: str, sight: str) -> Triple:
    red, green, blue = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = tuple(one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in (red, green, blue))
    seen = tuple(min(1.0, max(0.0, one)) for one in times(SIGHT[sight], (linear[0], linear[1], linear[2])))
    xyz = times(TO_XYZ, (seen[0], seen[1], seen[2]))
    scaled = [one / white for one, white in zip(xyz, WHITE, strict=True)]
    x, y, z = (one ** (1 / 3) if one > 0.008856 else 7.787 * one + 16 / 116 for one in scaled)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_neighbours_are_told_apart(theme: dict[str, str], one: str, other: str, sight: str) -> None:
    first, second = lab(theme[one], sight), lab(theme[other], sight)
    assert sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) ** 0.5 >= TOLD_APART
