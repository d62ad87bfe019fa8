"""The cards that are known by name, and what an estimate needs to know of a card."""

import re
from typing import Literal, get_args

import msgspec

from vramtui.core.base.errors import UserError, nearest


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A card as an estimator sees it.

    Attributes:
        name: the short name people use.
        capability: CUDA compute capability (major, minor).
        total_memory: bytes, as `torch.cuda.get_device_properties(0).total_memory` has it; for cards that were not
            read off, nvidia-smi's figure less what cards are seen to hold back. Of GB10 and Jetson, what unified
            memory lets a process have.
    """

    name: str
    capability: tuple[int, int]
    total_memory: int

    @property
    def vendor(self) -> str:
        """Whose it is."""
        return vendor_of(self.name)


def vendor_of(name: str) -> str:
    """Whose card it is by its name: what reads AMD's cards calls them `AMD …`."""
    return "AMD" if name.startswith("AMD ") else "NVIDIA"


# Of its memory a card keeps about so much from programs, fitted to those below that were seen: MiB, and a share.
HELD_BACK, HELD_BACK_SHARE = 180, 0.007


def _seen(name: str, major: int, minor: int, gib: float) -> Device:
    """A card whose `total_memory` people have posted, in PyTorch's "total capacity of 23.64 GiB" or the like."""
    return Device(name=name, capability=(major, minor), total_memory=int(gib * 2**30))


def _card(name: str, major: int, minor: int, mib: int) -> Device:
    """A card of which only nvidia-smi's memory column is known, in MiB."""
    usable = mib - HELD_BACK - round(mib * HELD_BACK_SHARE)
    return Device(name=name, capability=(major, minor), total_memory=usable << 20)


CARDS: dict[str, Device] = {
    device.name: device
    for device in (
        _card("GTX1080Ti", 6, 1, 11264),
        _card("P100", 6, 0, 16384),
        _seen("T4", 7, 5, 14.75),
        _seen("V100-16GB", 7, 0, 15.77),
        _seen("V100-32GB", 7, 0, 31.74),
        _card("RTX2060", 7, 5, 6144),
        _card("RTX2070", 7, 5, 8192),
        _card("RTX2080", 7, 5, 8192),
        _seen("RTX2080Ti", 7, 5, 10.75),
        _seen("TitanRTX", 7, 5, 23.65),
        _card("RTX8000", 7, 5, 49152),
        _card("RTX3050", 8, 6, 8192),
        _seen("RTX3060", 8, 6, 11.77),
        _card("RTX3060Ti", 8, 6, 8192),
        _seen("RTX3070", 8, 6, 7.79),
        _card("RTX3070Ti", 8, 6, 8192),
        _seen("RTX3080", 8, 6, 9.78),
        _card("RTX3080-12GB", 8, 6, 12288),
        _card("RTX3080Ti", 8, 6, 12288),
        _seen("RTX3090", 8, 6, 23.68),
        _card("RTX3090Ti", 8, 6, 24564),
        _card("RTX4060", 8, 9, 8188),
        _card("RTX4060Ti", 8, 9, 8188),
        _card("RTX4060Ti-16GB", 8, 9, 16380),
        _seen("RTX4070", 8, 9, 11.73),
        _card("RTX4070Super", 8, 9, 12282),
        _card("RTX4070Ti", 8, 9, 12282),
        _card("RTX4070TiSuper", 8, 9, 16376),
        _seen("RTX4080", 8, 9, 15.7),
        _card("RTX4080Super", 8, 9, 16376),
        _seen("RTX4090", 8, 9, 23.64),
        _card("RTX5060", 12, 0, 8151),
        _card("RTX5060Ti", 12, 0, 8151),
        _card("RTX5060Ti-16GB", 12, 0, 16311),
        _card("RTX5070", 12, 0, 12227),
        _card("RTX5070Ti", 12, 0, 16303),
        _card("RTX5080", 12, 0, 16303),
        _seen("RTX5090", 12, 0, 31.37),
        _card("A2000", 8, 6, 12282),
        _card("A4000", 8, 6, 16376),
        _card("A4500", 8, 6, 20470),
        _card("A5000", 8, 6, 24564),
        _card("A5500", 8, 6, 24564),
        _seen("A6000", 8, 6, 47.53),
        _card("RTX4000Ada", 8, 9, 20475),
        _card("RTX4500Ada", 8, 9, 24570),
        _card("RTX5000Ada", 8, 9, 32760),
        _seen("RTX6000Ada", 8, 9, 47.5),
        _card("RTXPRO4500", 12, 0, 32623),
        _card("RTXPRO5000", 12, 0, 48935),
        _seen("RTXPRO6000", 12, 0, 94.97),
        _seen("GB10", 12, 1, 119.7),
        _seen("JetsonOrinNano", 8, 7, 7.44),
        _seen("JetsonOrinNX", 8, 7, 15.29),
        _seen("JetsonAGXOrin-32GB", 8, 7, 29.98),
        _seen("JetsonAGXOrin-64GB", 8, 7, 61.37),
        _seen("JetsonThor", 11, 0, 122.82),
        _card("A2", 8, 6, 15356),
        _seen("A10", 8, 6, 22.19),
        _card("A16", 8, 6, 15356),
        _seen("A30", 8, 0, 23.51),
        _seen("A40", 8, 6, 44.35),
        _seen("L4", 8, 9, 22.16),
        _card("L20", 8, 9, 46068),
        _card("L40", 8, 9, 46068),
        _seen("L40S", 8, 9, 44.39),
        _card("A800-80GB", 8, 0, 81920),
        _card("H800", 9, 0, 81559),
        _seen("H20", 9, 0, 95.09),
        _seen("H100NVL", 9, 0, 93.11),
        _card("GH200", 9, 0, 97871),
        _card("GB200", 10, 0, 189471),
        _card("GB300", 10, 3, 284208),
        _seen("A100-40GB", 8, 0, 39.39),
        _seen("A100-80GB", 8, 0, 79.14),
        _seen("H100", 9, 0, 79.19),
        Device(name="H200", capability=(9, 0), total_memory=150109880320),
        _seen("B200", 10, 0, 178.35),
        _card("B300", 10, 3, 275040),
    )
}
ALIASES = {
    "A100": "A100-80GB",
    "A800": "A800-80GB",
    "DGX Spark": "GB10",
    "H100-80GB": "H100",
    "H200NVL": "H200",
    "Jetson": "JetsonAGXOrin-64GB",
    "JetsonAGXOrin": "JetsonAGXOrin-64GB",
    "JetsonAGXThor": "JetsonThor",
    "RTXA2000": "A2000",
    "RTXA4000": "A4000",
    "RTXA4500": "A4500",
    "RTXA5000": "A5000",
    "RTXA5500": "A5500",
    "RTXA6000": "A6000",
    "V100": "V100-16GB",
}
DEFAULT_CARD = "H100"
CardGroup = Literal["data centre", "workstation", "consumer", "desk and embedded"]
CARD_GROUPS: tuple[CardGroup, ...] = get_args(CardGroup)
# Whole small computers; RTX for workstations (formerly Quadro); GeForce and Titan. All others are for servers.
_GROUPS: tuple[tuple[re.Pattern[str], CardGroup], ...] = (
    (re.compile(r"GB10$|Jetson"), "desk and embedded"),
    (re.compile(r"RTX8000$|A[2456][05]00$|.*Ada$|RTXPRO"), "workstation"),
    (re.compile(r"GTX|RTX|Titan"), "consumer"),
)
# What nvidia-smi's names hold beside the card's own.
_BESIDE = (
    "nvidia", "geforce", "tesla", "quadro", "generation", "blackwell", "workstation", "server", "edition",
    "sxm2", "sxm4", "sxm5", "pcie", "hbm3e", "hbm3",
)  # fmt: skip


def card(name: str) -> Device:
    """The card called `name`, whatever its spelling in case, spaces and dashes.

    Raises:
        UserError: no such card is known; the sentence names the nearest one.
    """
    names = {_plain(known): known for known in (*CARDS, *ALIASES)}
    plain = _plain(name)
    # People call consumer cards by their number alone: 4090 is RTX4090, 1080ti is GTX1080Ti.
    known = names.get(plain) or names.get(f"rtx{plain}") or names.get(f"gtx{plain}")
    if known is None:
        guess = nearest(name, names.values())
        some = ", ".join(list(CARDS)[-6:])
        raise UserError(f"no card called {name!r} is known{guess}; give its memory instead, or a name such as {some}")
    return CARDS[ALIASES.get(known, known)]


def group_of(name: str) -> CardGroup:
    """Whose shelf a card of `CARDS` stands on."""
    return next((group for pattern, group in _GROUPS if pattern.match(name)), "data centre")


def _plain(name: str) -> str:
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    for word in _BESIDE:
        plain = plain.replace(word, "")
    return plain.removesuffix("gb")
