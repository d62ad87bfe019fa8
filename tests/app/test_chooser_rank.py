"""What is typed finds first what is called so."""

import pytest

from vramtui.app.ui.chooser import rank, ranked

PRESETS = (
    ("qwen-2.5-32b-infer", "Qwen 2.5 32B, 8 sequences, 3 of them long"),
    ("qwen-3-32b-infer", "Qwen 3 32B, 8 bit"),
    ("qwen-3-8b-lora", "Qwen 3 8B"),
    ("gpt2-1.5b", "GPT-2 XL"),
    ("flux-dev-infer", "FLUX with its VAE"),
)
AXES = (("GPUs", "that share the job"), ("sharding", "none, ZeRO, FSDP"))


def found(wanted: str, items: tuple[tuple[str, str], ...] = PRESETS) -> list[str]:
    return [name for name, _ in ranked(wanted, items, lambda item: item, lambda item: item[0])]


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        ("qwen 3 8", "qwen-3-8b-lora"),
        ("qwen38", "qwen-3-8b-lora"),
        ("3 8b", "qwen-3-8b-lora"),
        ("gpt2", "gpt2-1.5b"),
        ("xl", "gpt2-1.5b"),
        ("vae", "flux-dev-infer"),
        ("flxdev", "flux-dev-infer"),
        ("qwen-3-32b-infer", "qwen-3-32b-infer"),
    ],
)
def test_the_name_that_is_meant_comes_first(wanted: str, first: str) -> None:
    assert found(wanted)[0] == first


def test_a_name_comes_before_a_description() -> None:
    assert found("shar", AXES) == ["sharding", "GPUs"]


def test_nothing_typed_keeps_all_in_their_order_and_nonsense_finds_none() -> None:
    assert found("") == sorted(name for name, _ in PRESETS)
    assert found("  ") == sorted(name for name, _ in PRESETS)
    assert found("zzz") == []
    assert rank("x q", "qwen") is None
