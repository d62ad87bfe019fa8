"""Cards by whatever name somebody gives them."""

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import ALIASES, CARDS, COMPARED, card


def test_every_alias_names_a_card() -> None:
    assert set(ALIASES.values()) <= set(CARDS)
    assert card("a100") == CARDS["A100-80GB"]


@pytest.mark.parametrize("name", ["4099", "RTX4900"])
def test_an_unknown_card_gets_a_sentence_with_the_nearest_one(name: str) -> None:
    with pytest.raises(UserError, match=rf"no card called '{name}' is known \(did you mean RTX4090\?\)"):
        card(name)


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        *((spelling, "RTX4090") for spelling in ("RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090", "rtx-4090")),
        ("NVIDIA A10G", "A10G"),
        ("4090D", "RTX4090D"),
        ("4090 48GB", "RTX4090-48GB"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX4090Laptop"),
        ("RTX 4070 laptop", "RTX4070Laptop"),
        ("Orin (nvgpu)", "JetsonAGXOrin-64GB"),
        ("NVIDIA Thor", "JetsonThor"),
        ("H20-3e", "H20-141GB"),
        ("Tesla P40", "P40"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-PCIE-40GB", "A100-40GB"),
        ("Tesla V100-SXM2-32GB", "V100-32GB"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 NVL", "H100NVL"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
        ("NVIDIA GB10", "GB10"),
        ("a100 40", "A100-40GB"),
        ("v100 32gb", "V100-32GB"),
        ("jetson", "JetsonAGXOrin-64GB"),
    ],
)
def test_a_card_is_found_as_drivers_sellers_and_people_write_it(printed: str, name: str) -> None:
    assert card(printed) == CARDS[name]
    assert card(printed).name == name


def test_the_cards_that_people_ask_for_are_there() -> None:
    asked = "H100 H200 B200 B300 A100-40GB A100-80GB A10 A30 A40 A6000 L4 L40S T4 V100-16GB V100-32GB GB10 RTX6000Ada"
    consumer = "RTX3060 RTX3070 RTX3080 RTX3090 RTX4060 RTX4070 RTX4080 RTX4090 RTX5060 RTX5070 RTX5080 RTX5090"
    assert {*asked.split(), *consumer.split(), "RTXPRO6000"} <= set(CARDS)
    for device in CARDS.values():
        assert 4 << 30 < device.total_memory < 300 << 30
        assert (6, 0) <= device.capability <= (12, 1)
    assert not [device.name for device in COMPARED if "Laptop" in device.name], "tables leave them out"
