from typing import Any

import pytest

from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import MOST_ROUNDS, evaluate, names_in


class Keys:
    def __init__(self, **values: Any) -> None:
        self.values = values

    def value(self, name: str) -> Any:
        return self.values[name]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("heads * head_dim", 128), ("(width + 63) // 64 * 64", 128), ("ceil(width / 48)", 3),
        ("sizes[i - 1] if i > 0 else 3", 3), ("len(sizes) - 1", 1), ("kinds[i] == 'full'", True),
        ("i not in sizes and not tied", True), ("has(rank)", False), ("part.width * 2", 10),
        ("['a' if i % 2 == 0 else 'b' for i in range(3)]", ["a", "b", "a"]),
    ],
)  # fmt: skip
def test_what_it_says_is_worked_out(text: str, value: object) -> None:
    keys = Keys(
        heads=4, head_dim=32, width=100, sizes=[7, 9], i=0, kinds=["full"], tied=False, rank=None, part=Keys(width=5)
    )
    assert evaluate(text, keys) == value


@pytest.mark.parametrize(
    "text",
    [
        "many * width", "width ** width", "width // none", "width // 0", "text * 3", "width.inner", "other",
        "[0 for i in range(most)]",
    ],
)  # fmt: skip
def test_what_no_number_can_be_made_of_is_refused(text: str) -> None:
    keys = Keys(many=[1] * 3, width=10**9, none=None, text="abc", most=MOST_ROUNDS + 1)
    with pytest.raises(DamagedError, match="cannot be worked out"):
        evaluate(text, keys)


def test_names_are_those_of_keys() -> None:
    assert names_in("depths[i] * part.width") == {"depths", "i", "part"}
