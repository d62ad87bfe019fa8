"""The cards that are known by name, and what an estimate needs to know of a card."""

import msgspec

from vramtui.core.errors import UserError, nearest


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """A card as an estimator sees it.

    Attributes:
        name: the short name people use.
        capability: CUDA compute capability (major, minor).
        total_memory: bytes, as `torch.cuda.get_device_properties(0).total_memory` has it; for cards that were not
            read off, the vendor's capacity less what cards of that family are seen to hold back.
    """

    name: str
    capability: tuple[int, int]
    total_memory: int


def _card(name: str, major: int, minor: int, mib: int) -> Device:
    return Device(name=name, capability=(major, minor), total_memory=mib << 20)


# MiB as nvidia-smi prints them in its memory column.
CARDS: dict[str, Device] = {
    device.name: device
    for device in (
        _card("T4", 7, 5, 15360),
        _card("V100-16GB", 7, 0, 16384),
        _card("V100-32GB", 7, 0, 32768),
        _card("A10", 8, 6, 23028),
        _card("A30", 8, 0, 24576),
        _card("A40", 8, 6, 46068),
        _card("A100-40GB", 8, 0, 40960),
        _card("A100-80GB", 8, 0, 81920),
        _card("A6000", 8, 6, 49140),
        _card("L4", 8, 9, 23034),
        _card("L40S", 8, 9, 46068),
        _card("RTX2080Ti", 7, 5, 11264),
        _card("RTX3060", 8, 6, 12288),
        _card("RTX3090", 8, 6, 24576),
        _card("RTX4070", 8, 9, 12282),
        _card("RTX4080", 8, 9, 16376),
        _card("RTX4090", 8, 9, 24564),
        _card("RTX5090", 12, 0, 32607),
        _card("RTX6000Ada", 8, 9, 49140),
        _card("RTXPRO6000", 12, 0, 97887),
        _card("H100", 9, 0, 81559),
        _card("H100NVL", 9, 0, 95830),
        _card("GH200", 9, 0, 97871),
        _card("H20", 9, 0, 97871),
        Device(name="H200", capability=(9, 0), total_memory=150109880320),
        _card("B200", 10, 0, 183359),
    )
}
ALIASES = {"A100": "A100-80GB", "RTXA6000": "A6000", "V100": "V100-16GB", "H100-80GB": "H100", "H200NVL": "H200"}
DEFAULT_CARD = "H100"


def card(name: str) -> Device:
    """The card called `name`, whatever its spelling in case, spaces and dashes.

    Raises:
        UserError: no such card is known; the sentence names the nearest one.
    """
    names = {_plain(known): known for known in (*CARDS, *ALIASES)}
    known = names.get(_plain(name))
    if known is None:
        guess = nearest(name, names.values())
        raise UserError(
            f"no card called {name!r} is known{guess}; give its memory instead, or one of: {', '.join(CARDS)}"
        )
    return CARDS[ALIASES.get(known, known)]


def _plain(name: str) -> str:
    return name.lower().replace("nvidia", "").replace("geforce", "").replace(" ", "").replace("-", "").replace("_", "")
