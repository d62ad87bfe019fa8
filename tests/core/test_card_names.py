"""Names of GPUs as drivers, sellers and people write them."""

import pytest

from vramtui.core.estimate.devices import COMPARED, card


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("NVIDIA A10G", "A10G"),
        ("4090D", "RTX4090D"),
        ("4090 48GB", "RTX4090-48GB"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX4090Laptop"),
        ("RTX 4070 laptop", "RTX4070Laptop"),
        ("Orin (nvgpu)", "JetsonAGXOrin-64GB"),
        ("NVIDIA Thor", "JetsonThor"),
        ("H20-3e", "H20-141GB"),
        ("Tesla P40", "P40"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
    ],
)
def test_a_name_is_known(name: str, known: str) -> None:
    assert card(name).name == known


def test_tables_leave_laptops_out() -> None:
    assert not [device.name for device in COMPARED if "Laptop" in device.name]
