import pytest

from vramtui.core.devices import ALIASES, CARDS, card
from vramtui.core.errors import UserError


@pytest.mark.parametrize("spelling", ["RTX 4090", "rtx4090", "NVIDIA GeForce RTX 4090", "rtx-4090"])
def test_a_card_is_found_however_it_is_spelt(spelling: str) -> None:
    assert card(spelling).name == "RTX4090"


def test_every_alias_names_a_card() -> None:
    assert set(ALIASES.values()) <= set(CARDS)
    assert card("a100") == CARDS["A100-80GB"]


def test_an_unknown_card_gets_a_sentence_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"no card called 'RTX4900' is known \(did you mean RTX4090\?\)"):
        card("RTX4900")
