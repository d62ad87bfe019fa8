"""`PYTORCH_CUDA_ALLOC_CONF`: what is accepted, what is refused and how that is said, and the sizes it leads to."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig, next_division

MIB = 1 << 20


def test_nothing_set_is_pytorchs_default() -> None:
    assert AllocatorConfig.parse("") == AllocatorConfig()
    config = AllocatorConfig()
    assert config.max_split_size is None
    assert not config.expandable_segments


def test_every_setting_lands_in_its_field() -> None:
    config = AllocatorConfig.parse(
        "max_split_size_mb:128, max_non_split_rounding_mb:40,garbage_collection_threshold:0.6,"
        "expandable_segments:True,large_segment_size_mb:32,per_process_memory_fraction:0.5,"
        "roundup_power2_divisions:4,backend:native,pinned_use_background_threads:True,"
    )
    assert config == AllocatorConfig(
        max_split_size=128 * MIB,
        max_non_split_rounding=40 * MIB,
        garbage_collection_threshold=0.6,
        expandable_segments=True,
        large_segment_size=32 * MIB,
        memory_fraction=0.5,
        roundup_divisions=(4,) * 16,
    )


def test_a_list_of_divisions_fills_as_pytorch_does() -> None:
    def divisions(text: str) -> tuple[int, ...]:
        return AllocatorConfig.parse(f"roundup_power2_divisions:{text}").roundup_divisions

    assert divisions("[256:1,512:2,1024:4,>:8]") == (1,) * 9 + (2, 4) + (8,) * 5
    assert divisions("[4:2,64:0]") == (2, 2, 2) + (0,) * 13
    assert divisions("[>:4]") == (0,) + (4,) * 15
    assert divisions("[65536:2]") == (2,) * 16


@for_each(rows(__file__, "a_wrong_setting_is_one"))
def test_a_wrong_setting_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        AllocatorConfig.parse(text)
    message = str(caught.value)
    assert message.startswith("PYTORCH_CUDA_ALLOC_CONF: ")
    assert sentence in message
    assert "\n" not in message


@given(st.text(max_size=60))
def test_any_text_is_settings_or_a_sentence(text: str) -> None:
    with contextlib.suppress(UserError):
        AllocatorConfig.parse(text)


@for_each(
    [
        (1, 512, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB), (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB), (10 * MIB - 1, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
    ]
)  # fmt: skip
def test_block_and_segment_sizes(size: int, block: int, segment: int) -> None:
    config = AllocatorConfig()
    assert config.rounded(size) == block
    assert config.segment_size(block) == segment


def test_divisions_round_up_to_steps_between_powers_of_two() -> None:
    # The example PyTorch's own notes give: 1200 with 4 divisions lies between 1024 and 2048 in steps of 256.
    assert next_division(1200, 4) == 1280
    assert next_division(1024, 4) == 1024
    assert next_division(3, 8) == 4
    config = AllocatorConfig.parse("roundup_power2_divisions:4")
    assert config.rounded(1200) == 1536  # up to 512 x 4 the usual blocks
    assert config.rounded(5 * MIB + 1) == 6 * MIB


@given(st.integers(1, 1 << 40), st.sampled_from([0, 1, 2, 4, 8, 16]))
def test_a_block_holds_its_request(size: int, divisions: int) -> None:
    config = AllocatorConfig(roundup_divisions=(divisions,) * 16 if divisions else ())
    block = config.rounded(size)
    assert block >= size
    assert block % 512 == 0
    assert config.segment_size(block) >= block
    if divisions <= 1:
        assert block - size < 512


def test_other_settings_leave_what_the_card_holds_outside_of_the_allocator() -> None:
    allocator = CachingAllocator(1 << 30, release=(2, 12))
    allocator.hold_outside(300 << 20)
    twin = allocator.with_config(AllocatorConfig.parse("expandable_segments:True"))
    assert (twin.free_memory, twin.release) == (allocator.free_memory, (2, 12))
    assert twin.config.expandable_segments
