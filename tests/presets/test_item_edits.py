"""Elements of lists are changed, put in, taken out and moved, in whatever way of writing TOML a person chose."""

from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.presets.list_places import first_and_last, place
from tests.properties import examples
from vramtui.core.base import toml
from vramtui.presets import bundled_folder, preset_files
from vramtui.presets.draft.draft import Draft
from vramtui.presets.form.form import form_of
from vramtui.presets.form.types import FormField, fields_of
from vramtui.presets.toml.edits import put_value, quoted
from vramtui.presets.toml.item_edits import copy_item, put_item, swap_items, take_item, value_text
from vramtui.presets.toml.positions import key_of

SHIPPED = preset_files(bundled_folder())
ON_LINES = """\
v = [ # all
  { b = 1 }, # one
  # between
  { b = 2 } # two
]
"""
TABLES = """\
name = "n"

[[m.l]] # one
t = 1

# about two
[[m.l]]
t = 2 # x

[run]
k = 1
"""


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        ("v = []", "v", "1", "v = [1]"),
        ("v = [ ]", "v", "1", "v = [1]"),
        ("v = [ # c\n]", "v", "1", "v = [1# c\n]"),
        ("v = [1, 2] # c", "v", "3", "v = [1, 2, 3] # c"),
        ("v = [[1], [2]]", "v[1]", "3", "v = [[1], [2, 3]]"),
        ("v = [\n  1,\n]\n", "v", "2", "v = [\n  1,\n  2,\n]\n"),
        ("v = [\r\n\t1\r\n]\r\n", "v", "2", "v = [\r\n\t1,\r\n\t2\r\n]\r\n"),
        ("v = [\n  1 # c\n]\n", "v", "2", "v = [\n  1, # c\n  2\n]\n"),
        ("[t]\na = 1\n", "t.v", "2", "[t]\na = 1\nv = [2]\n"),
        ("v = 1", "v", "2", "v = 1"),
        (TABLES, "m.l", "{}", TABLES),
    ],
)
def test_put(before: str, key: str, value: str, after: str) -> None:
    assert put_item(before, key_of(key), value) == after


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("v = [1, 2, 3] # c", "v[0]", "v = [2, 3] # c"),
        ("v = [1, 2, 3] # c", "v[2]", "v = [1, 2] # c"),
        ("v = [ 1 ]", "v[0]", "v = [ ]"),
        ("v = [1, # one\n 2]", "v[1]", "v = [1, # one\n ]"),
        ("v = [1, 2,]", "v[1]", "v = [1]"),
        (ON_LINES, "v[0]", ON_LINES.replace("  { b = 1 }, # one\n", "")),
        (ON_LINES, "v[1]", ON_LINES.replace("  { b = 2 } # two\n", "")),
        (TABLES, "m.l[0]", TABLES.replace("[[m.l]] # one\nt = 1\n\n", "")),
        (TABLES, "m.l[1]", TABLES.replace("[[m.l]]\nt = 2 # x\n\n", "")),
    ],
)
def test_take(before: str, key: str, after: str) -> None:
    assert take_item(before, key_of(key)) == after


@pytest.mark.parametrize(
    ("before", "key", "after"),
    [
        ("v = [1, 'b', 3]", "v[0]", "v = ['b', 1, 3]"),
        ("v = [1]", "v[0]", "v = [1]"),
        (ON_LINES, "v[0]", "v = [ # all\n  { b = 2 }, # two\n  # between\n  { b = 1 } # one\n]\n"),
        (
            TABLES,
            "m.l[0]",
            'name = "n"\n\n[[m.l]]\nt = 2 # x\n\n# about two\n[[m.l]] # one\nt = 1\n\n[run]\nk = 1\n',
        ),
        ("[[a]]\nx = 1\n[b]\n[[a]]\nx = 2\n[a.c]\n", "a[0]", "[[a]]\nx = 2\n[a.c]\n[b]\n[[a]]\nx = 1\n"),
    ],
)
def test_swap(before: str, key: str, after: str) -> None:
    assert swap_items(before, key_of(key)) == after


def test_copies_stand_behind_and_are_spaced_alike() -> None:
    assert copy_item("v = [1, 2]", ("v", 0)) == "v = [1, 1, 2]"
    assert copy_item(ON_LINES, ("v", 0)) == ON_LINES.replace("# one\n", "# one\n  { b = 1 },\n")
    assert copy_item(TABLES, ("m", "l", 0)) == TABLES.replace("t = 1\n", "t = 1\n\n[[m.l]] # one\nt = 1\n")
    assert copy_item("[[a]]\nx = 1\n[[a]]\nx = 2", ("a", 1)) == "[[a]]\nx = 1\n[[a]]\nx = 2\n[[a]]\nx = 2"
    assert copy_item(TABLES, ("m", "l", 5)) == TABLES


def test_a_key_of_a_table_in_a_list_is_put_like_any_other() -> None:
    assert put_value(TABLES, ("m", "l", 1, "t"), "7") == TABLES.replace("t = 2", "t = 7")
    assert put_value(TABLES, ("m", "l", 0, "u"), "7") == TABLES.replace("t = 1\n", "t = 1\nu = 7\n")
    assert put_value(ON_LINES, ("v", 0, "c"), "7") == ON_LINES.replace("{ b = 1 }", "{ b = 1, c = 7 }")
    assert put_value(TABLES, ("m", "l", 4, "t"), "7") == TABLES


VALUES = st.sampled_from(["1", "2.5", "'a,b'", '"# ]"', "[1, 2]", "{ x = 1 }", "{ x = [3], y = 'z' }"])


@st.composite
def lists(draw: st.DrawFn) -> str:
    """A list on one line, or with a line for each element."""
    values = draw(st.lists(VALUES, max_size=5))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    if draw(st.booleans()):
        return (
            f"a = 1{end}v = [{', '.join(values)}{draw(st.sampled_from(['', ',', ' ', ' , '])) if values else ''}]{end}"
        )
    notes = [draw(st.sampled_from(["", " # note", "  # [x], 'y"])) for _ in values]
    last = draw(st.sampled_from(["", ","]))
    commas = [","] * (len(values) - 1) + [last]
    lines = [f"  {value}{comma}{note}" for value, comma, note in zip(values, commas, notes, strict=False)]
    return end.join(["v = [ # head", *lines, "] # tail", ""])


@st.composite
def tables(draw: st.DrawFn) -> str:
    """The same as `[[v]]`."""
    inner = st.sampled_from(["", "x = 1", "x = [1,\n2] # two", "[v.y]"])
    notes = st.sampled_from(["", " # note"])
    blocks = [f"[[v]]{draw(notes)}\n{draw(inner)}" for _ in range(draw(st.integers(1, 4)))]
    gap = draw(st.sampled_from(["\n", "\n\n"]))
    return "a = 1\n" + gap + gap.join(blocks) + draw(st.sampled_from(["", "\n", "\n\n[w]\nz = 1\n"]))


def _list(text: str) -> list[Any]:
    found: list[Any] = toml.loads(text).get("v", [])
    return found


@examples(300)
@given(st.one_of(lists(), tables()), st.integers(0, 5))
def test_only_the_element_is_another(text: str, number: int) -> None:
    before = _list(text)
    rest = {key: value for key, value in toml.loads(text).items() if key != "v"}
    if number >= len(before):
        assert swap_items(text, ("v", number)) == copy_item(text, ("v", number)) == text
        return
    copied = copy_item(text, ("v", number))
    assert _list(copied) == [*before[: number + 1], *before[number:]]
    taken = take_item(text, ("v", number))
    assert _list(taken) == [*before[:number], *before[number + 1 :]]
    swapped = swap_items(text, ("v", number))
    expected = list(before)
    expected[number : number + 2] = reversed(expected[number : number + 2])
    assert _list(swapped) == expected
    assert swap_items(swapped, ("v", number)) == text
    assert swapped.count("#") == text.count("#")
    for after in (copied, taken, swapped):
        assert {key: value for key, value in toml.loads(after).items() if key != "v"} == rest


@examples(200)
@given(lists(), VALUES)
def test_one_more_is_there_and_goes_again(text: str, value: str) -> None:
    before = _list(text)
    after = put_item(text, ("v",), value)
    assert _list(after) == [*before, toml.loads(f"v = {value}")["v"]]
    assert _list(take_item(after, ("v", len(before)))) == before
    assert after.count("#") == text.count("#") + value.count("#")


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r")), st.sampled_from(["'''", '"""\n']))
def test_text_over_lines_stays_over_lines(value: str, like: str) -> None:
    after = quoted(value, like)
    assert toml.loads(f"v = {after}") == {"v": value}
    if value.isprintable() and "'''" not in value:
        assert after.startswith(like)


def test_one_line_of_a_long_text_is_one_line_of_the_file() -> None:
    text = 'name = "n"\nnotes = """\nfirst\nsecond\n"""\n'
    draft = Draft.new(text, "n")
    draft.edits.set_value("notes", "first\nthird\n")
    assert draft.text == text.replace("second", "third")
    windows = text.replace("\n", "\r\n")
    draft = Draft.new(windows, "n")
    draft.edits.set_value("notes", "first\nthird\n")
    assert draft.text == windows.replace("second", "third")


LEAVES = st.one_of(st.integers(), st.booleans(), st.text(st.characters(exclude_categories=["Cs"])))
NESTED = st.recursive(LEAVES, lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.sampled_from("abc"), inner)))


@given(NESTED)
def test_any_value_is_written_on_one_line(value: Any) -> None:
    assert toml.loads(f"v = {value_text(value)}") == {"v": value}
    assert "\n" not in value_text(value)


STAGES = (bundled_folder() / "resnet" / "resnet-18-train.toml").read_text(encoding="utf-8")
LAYERS = """\
name = "n"

[model]
kind = "sequential"
input_shape = [4]

# the first
[[model.layers]]
type = "linear"
out_features = 2 # two

[[model.layers]]
type = "activation"

[run]
kind = "train"
"""


def _field(text: str, key: str) -> FormField:
    return fields_of(form_of(text))[key]


def test_a_list_has_its_elements_and_an_empty_one() -> None:
    stages = _field(STAGES, "model.stages")
    assert (stages.many, stages.settable, len(stages.items)) == (True, True, 5)
    first = stages.items[0]
    assert (first.key, first.label, first.value) == (
        "model.stages[0]",
        "[0]",
        "{ blocks = 2, channels = 64, stride = 1 }",
    )
    assert [field.key for field in first.items] == [
        f"model.stages[0].{name}" for name in ("blocks", "channels", "stride")
    ]
    assert (first.items[1].kind, first.items[1].value, first.items[1].minimum) == ("int", "64", 1)
    assert first.line == 8
    assert stages.items[-1].is_new
    assert stages.items[-1].default == "{ blocks = 1, channels = 1 }"


def test_tables_of_a_list_are_its_elements() -> None:
    layers = _field(LAYERS, "model.layers")
    assert (layers.settable, layers.line, len(layers.items)) == (False, 8, 3)
    assert layers.items[0].value == '{ type = "linear", out_features = 2 }'
    assert not layers.items[0].settable
    tag = layers.items[0].items[0]
    assert (tag.key, tag.kind, tag.value, tag.choices[0]) == ("model.layers[0].type", "choice", "linear", "linear")
    assert _field(LAYERS, "model.layers[0].out_features").value == "2"
    assert _field(LAYERS, "model.layers[0].bias").default == "true"


def test_elements_of_the_default_are_shown_and_said_when_one_is_changed() -> None:
    path = next(path for path in SHIPPED if path.stem == "rule-resnet50")
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("blocks"))
    draft = Draft.new(text.replace(f"{line}\n", ""), "r")
    blocks = fields_of(draft.form)["rule.blocks"]
    assert (blocks.value, blocks.default) == (None, "[3, 4, 6, 3]")
    assert [item.default for item in blocks.items[:-1]] == ["3", "4", "6", "3"]
    draft.edits.set_value("rule.blocks[2]", "23")
    assert fields_of(draft.form)["rule.blocks"].value == "[3, 4, 23, 3]"
    draft.edits.undo()
    draft.edits.unset("rule.blocks[0]")
    assert fields_of(draft.form)["rule.blocks"].value == "[4, 6, 3]"
    draft.edits.undo()
    draft.edits.move_item("rule.blocks[0]", 1)
    assert fields_of(draft.form)["rule.blocks"].value == "[4, 3, 6, 3]"
    draft.edits.undo()
    assert draft.text == text.replace(f"{line}\n", "")


def test_elements_are_added_moved_and_taken_in_one_step_each() -> None:
    draft = Draft.new(STAGES, "s")
    assert draft.edits.add_item("model.stages[1]") == "model.stages[2]"
    assert draft.text == STAGES.replace(
        "  { blocks = 2, channels = 128, stride = 2 },\n", "  { blocks = 2, channels = 128, stride = 2 },\n" * 2
    )
    draft.edits.undo()
    assert draft.text == STAGES
    assert draft.edits.move_item("model.stages[0]", -1) == "model.stages[0]"
    assert draft.edits.move_item("model.stages[3]", 1) == "model.stages[3]"
    assert draft.text == STAGES
    assert draft.edits.move_item("model.stages[0]", 1) == "model.stages[1]"
    assert draft.text.index("channels = 128") < draft.text.index("channels = 64,")
    assert draft.edits.move_item("model.stages[1]", -1) == "model.stages[0]"
    assert draft.text == STAGES
    draft.edits.unset("model.stages[0]")
    assert draft.text == STAGES.replace("  { blocks = 2, channels = 64, stride = 1 },\n", "")
    for _ in range(3):
        draft.edits.undo()
    assert draft.text == STAGES
    assert draft.edits.add_item("model.stages[4]") == "model.stages[4]"
    assert draft.text.count("channels = 512") == 2


def test_a_table_of_a_list_is_changed_in_its_line() -> None:
    draft = Draft.new(LAYERS, "n")
    draft.edits.set_value("model.layers[0].out_features", "3")
    draft.edits.set_value("model.layers[1].type", "flatten")
    assert draft.text == LAYERS.replace("= 2 #", "= 3 #").replace('"activation"', '"flatten"')
    assert draft.edits.add_item("model.layers[1]") == "model.layers[2]"
    assert draft.text.count('[[model.layers]]\ntype = "flatten"\n') == 2
    draft.edits.unset("model.layers[0]")
    assert "linear" not in draft.text
    assert "# the first" in draft.text


def test_the_first_of_a_list_has_what_it_needs() -> None:
    draft = Draft.new('[model]\nkind = "convnet"\n\n[run]\nkind = "train"\n', "c")
    assert draft.edits.add_item("model.stages[0]") == "model.stages[0]"
    assert "stages = [{ blocks = 1, channels = 1 }]\n" in draft.text
    draft.edits.set_value("model.stages[0].channels", "9")
    assert "stages = [{ blocks = 1, channels = 9 }]\n" in draft.text


def test_an_element_of_the_wrong_sort_is_marked_at_its_own_key() -> None:
    draft = Draft.new(STAGES, "s")
    draft.edits.set_value("model.stages[2].channels", "0")
    assert [(problem.key, problem.line) for problem in draft.problems] == [("model.stages[2].channels", 10)]
    draft.edits.set_value("model.stages[2].channels", "x")
    assert "model.stages[2].channels is 'x'; a whole number is needed" in {p.sentence for p in draft.problems}


@cache
def lists_of(path: Path) -> dict[str, FormField]:
    """The lists that a shipped preset has, of those in lists the first and the last."""
    fields = fields_of(form_of(path.read_text(encoding="utf-8")))
    lists = {field.key: field for field in fields.values() if field.many and field.value is not None}
    return {key: lists[key] for key in first_and_last(lists)}


def presets_with_lists() -> dict[str, list[tuple[Path, FormField]]]:
    """By its key, whatever its place in lists, where each list stands."""
    found: defaultdict[str, list[tuple[Path, FormField]]] = defaultdict(list)
    for path in SHIPPED:
        for key, field in lists_of(path).items():
            found[place(key)].append((path, field))
    return found


@pytest.mark.slow
def test_what_was_put_in_and_taken_out_again_leaves_no_trace() -> None:
    """Of each list that a shipped preset has, the first, the middle and the last file: they are written alike."""
    for found in presets_with_lists().values():
        for path, field in {id(one): one for one in (found[0], found[len(found) // 2], found[-1])}.values():
            text = path.read_text(encoding="utf-8")
            draft = Draft.new(text, path.stem)
            last = len(field.items) - 2
            for number in sorted({0, last} & set(range(last + 1))):  # of a list with each layer's kind, some
                draft.edits.unset(draft.edits.add_item(f"{field.key}[{number}]"))
                assert draft.text == text, (path, field.key)
                there = draft.edits.move_item(f"{field.key}[{number}]", 1)
                if there != f"{field.key}[{number}]":
                    draft.edits.move_item(there, -1)
                assert draft.text == text, (path, field.key)


def test_keys_of_a_table_that_may_have_any_are_changed_one_by_one() -> None:
    text = '[model]\nkind = "huggingface"\n\n[model.config]\nmodel_type = "llama"  # as published\nhidden_size = 256\n'
    draft = Draft.new(text, "h")
    config = _field(text, "model.config")
    assert [(item.key, item.kind, item.value) for item in config.items] == [
        ("model.config.model_type", "text", "llama"),
        ("model.config.hidden_size", "int", "256"),
    ]
    draft.edits.set_value("model.config.hidden_size", "512")
    draft.edits.set_value("model.config.model_type", "gemma")
    assert draft.text == text.replace("256", "512").replace('"llama"', '"gemma"')
    draft.edits.set_value("model.config.hidden_size", "wide")
    assert "model.config.hidden_size is 'wide'; a whole number is needed" in {p.sentence for p in draft.problems}
