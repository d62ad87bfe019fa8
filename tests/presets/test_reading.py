import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.examples import SMALL_MODEL
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import TrainRun
from vramtui.presets import find_problems, load_preset, parse_preset
from vramtui.presets.schema import find_faults

GOOD = f"""\
name = "Small"

{SMALL_MODEL}
[run]
kind = "train"
batch_size = 2
optimizer = "adam"

[run.lora]
rank = 4
target_modules = ["q_proj",
  "v_proj"]

[match]
all = [["train"]]
"""


def broken(old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(UserError) as caught:
        parse_preset(GOOD.replace(old, new), "presets/small.toml")
    return str(caught.value)


def test_a_good_preset_and_what_is_near_one() -> None:
    preset = parse_preset(GOOD, "small.toml")
    assert preset.name == "Small"
    assert isinstance(preset.run, TrainRun)
    assert preset.run.batch_size == 2
    assert preset.match.all == (("train",),)
    assert find_problems(GOOD) == ()
    message = broken('optimizer = "adam"', 'optimizer = "adan"')
    assert message.startswith("presets/small.toml:13: run.optimizer is 'adan' (did you mean adam?); it is one of: ")
    with pytest.raises(UserError, match=r"^x\.toml: model is missing; a preset needs it$"):
        parse_preset('name = "x"\n[run]\nkind = "train"\n', "x.toml")
    with pytest.raises(UserError, match="nested too deeply"):
        parse_preset("a = " + "[" * 100_000, "x.toml")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        *rows(__file__, "each_mistake_is_one_sentence_with_file_line_and_key"),
        ("num_hidden_layers = 2", "num_hidden_layers = 1" + "0" * 400,
         "6: model.num_hidden_layers is a number too large; it must be at most 4096"),
        ('[["train"]]', f'[["{"a" * 600}"]]', "21: match.all[0][0] is 600 characters long; at most 512 are allowed"),
    ],
)  # fmt: skip
def test_each_mistake_is_one_sentence_with_file_line_and_key(old: str, new: str, sentence: str) -> None:
    message = broken(old, new)
    assert message.startswith(f"presets/small.toml:{sentence}")
    assert "\n" not in message
    assert "\x1b" not in message


def test_every_problem_is_found_in_the_order_of_lines_then_what_is_missing() -> None:
    text = GOOD.replace("hidden_size = 64", "hiden_size = 64").replace("batch_size = 2", "batch_size = 0")
    assert [(problem.line, problem.key) for problem in find_problems(text)] == [
        (5, "model.hiden_size"),
        (12, "run.batch_size"),
        (3, "model"),
    ]


def test_files_that_are_no_presets(tmp_path: Path) -> None:
    def sentence(path: Path) -> str:
        with pytest.raises(UserError) as caught:
            load_preset(path)
        return str(caught.value)

    assert sentence(tmp_path / "none.toml").endswith("none.toml does not exist")
    assert sentence(tmp_path).endswith("is a folder without a config.json: name a .toml or a .gguf file")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'name = "a"\nnotes = "\xe9"\n')
    assert sentence(latin).endswith("latin.toml:2: not UTF-8 text")
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * ((1 << 20) + 1))
    assert sentence(large).endswith("is larger than 1 MiB, which no preset is")
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    assert sentence(pipe).endswith("is not a plain file")
    assert "cannot be read" in sentence(Path("a\0b.toml"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    path.chmod(0)
    with pytest.raises(UserError, match="cannot be read: Permission denied"):
        load_preset(path)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "small.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert load_preset(path).name == "Small"


VALUES = st.one_of(
    st.integers(-3, 2**41),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.sampled_from(["train", "infer", "adam", "bf16", "transformer", "learned", "x", ""]),
    st.lists(st.one_of(st.integers(0, 3), st.text(max_size=3)), max_size=2),
    st.dictionaries(st.sampled_from(["rank", "kind", "x"]), st.integers(0, 9), max_size=2),
)
KEYS = st.one_of(
    st.sampled_from(["kind", "rank", "name", "lora", "batch_size", "hidden_size", "dropout"]), st.text(max_size=4)
)


@given(table=st.sampled_from(["", "model", "run", "match", "run.lora"]), key=KEYS, value=st.one_of(st.none(), VALUES))
@example(table="model", key="hidden_size", value=11_863_284)
def test_the_walk_and_the_schema_agree(table: str, key: str, value: object) -> None:
    """A sentence is found for every document that msgspec refuses, and for none that it takes."""
    tables = msgspec.to_builtins(parse_preset(GOOD, "small.toml"))
    place = tables
    for part in filter(None, table.split(".")):
        place = place[part]
    if value is None:
        place.pop(key, None)
    else:
        place[key] = value
    try:
        msgspec.convert(tables, Preset)
        refused = False
    except (msgspec.ValidationError, UserError) as error:
        refused = not isinstance(error, UserError)  # sizes that are too much together say so themselves
    assert bool(find_faults(tables)) == refused


@pytest.mark.parametrize(("written", "number"), [('"32k"', 32768), ('"1M"', 1 << 20), ("4096", 4096)])
def test_token_counts_are_written_as_on_the_command_line(written: str, number: int) -> None:
    changed = GOOD.replace("batch_size = 2\n", f"batch_size = 2\nsequence_length = {written}\n")
    run = parse_preset(changed, "x.toml").run
    assert isinstance(run, TrainRun)
    assert run.sequence_length == number
    wrong = changed.replace(written, '"32q"')
    with pytest.raises(UserError, match=r"run\.sequence_length"):
        parse_preset(wrong, "x.toml")
