"""Whatever a program prints, the parsers give values or reasons, and never raise."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.readings import Host, decode_sample, encode_sample
from vramtui.sources.nvidia_smi import (
    COLUMNS,
    NvidiaSmiSource,
    Output,
    balanced,
    lost_devices,
    parse_apps,
    parse_gpus,
    parse_value,
    rejected_field,
)

KINDS = sorted({column.kind for column in COLUMNS})
LINES = st.lists(st.one_of(st.text(), st.from_regex(r"\d+(, ?[\[\]\w ./\-]*){0,25}")), max_size=5).map("\n".join)


def harmless(text: str) -> bool:
    return printable(text) == text


@given(st.text(), st.sampled_from(KINDS))
def test_a_cell_is_a_value_or_a_reason(text: str, kind: str) -> None:
    value, absence = parse_value(text, kind)
    assert (value is None) == (absence is not None)
    if isinstance(value, str):
        assert harmless(value)


@given(LINES)
def test_any_text_is_read(text: str) -> None:
    for row, absent in parse_gpus(text, COLUMNS):
        assert {field for field, value in row.items() if value is None} == set(absent)
    for app in parse_apps(text):
        assert app.pid > 0
        assert app.name is None or harmless(app.name)
    assert all(harmless(bus) and harmless(reason) for bus, reason in lost_devices(text).items())
    rejected_field(text)


@given(LINES, LINES, st.integers(0, 20))
def test_a_source_gives_a_sample_or_says_why_not(cards: str, apps: str, code: int) -> None:
    def runner(command: Sequence[str], _: float) -> Output:
        return Output(cards if command[1].startswith("--query-gpu") else apps, code)

    source = NvidiaSmiSource(
        runner, host=lambda driver, cuda: Host(name="far", driver_version=driver, cuda_version=cuda)
    )
    try:
        sample = source.read()
    except SourceFailed as error:
        assert harmless(error.message)  # noqa: PT017 - either of the two is right
    else:
        assert decode_sample(encode_sample(sample)) == sample


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(0, 2000), st.integers(-2, 2))
def test_rounded_parts_add_up_to_the_whole(used: int, free: int, reserved: int, error: int) -> None:
    total = used + free + reserved
    rest = balanced(total * MIB, used * MIB, reserved * MIB, (free + error) * MIB)
    assert rest == free * MIB
