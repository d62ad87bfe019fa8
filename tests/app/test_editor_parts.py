import typing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from tests.app import scenes
from tests.app.driver import settle
from tests.app.editor_samples import editor, preset_at
from tests.examples import SMALL_MODEL
from vramtui.app.editor.form_panel import UNSET, Outline, first_key, key_of_entry, stepped, token_spans
from vramtui.core.base.units import GIB
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.draft import Draft, FormField, FormGroup, Kind, choice_words, form_of
from vramtui.presets.toml_text import same_ends

SCHEMA = "vramtui.core.schema"
SETTINGS = "vramtui.core.schema.settings"
PRESET = 'name = "Tiny"\n' + SMALL_MODEL.replace("100", "128")


def _field(kind: Kind, value: str | None = None, **more: object) -> FormField:
    return FormField(key="run.x", label="x", help="", kind=kind, value=value, **more)  # type: ignore[arg-type]  # any field


@pytest.mark.parametrize(
    ("value", "up", "down"),
    [("1", "2", "1"), ("31", "32", "30"), ("32", "40", "31"), ("2048", "2560", "1536"), ("1024", "1536", "960")],
)
def test_numbers_go_by_rounder_steps_the_larger_they_are(value: str, up: str, down: str) -> None:
    field = _field("int", value, minimum=1)
    assert (stepped(field, 1), stepped(field, -1)) == (up, down)


@given(value=st.integers(1, 1 << 40), direction=st.sampled_from([1, -1]))
def test_a_step_goes_its_way_and_keeps_to_the_limits(value: int, direction: int) -> None:
    field = _field("int", str(value), minimum=1, maximum=1 << 40)
    after = int(stepped(field, direction) or "")
    assert 1 <= after <= 1 << 40
    assert (after - value) * direction >= 0


@pytest.mark.parametrize(("line", "expected"), [
    ("[run.lora]  # x", [("table", "[run.lora]"), ("comment", "# x")]),
    ('name = "a # b" # c', [("key", "name"), ("string", '"a # b"'), ("comment", "# c")]),
    ("a.b = 1_000", [("key", "a.b"), ("number", "1_000")]),
    ("x = [true, 1.5e3, 'y']", [("key", "x"), ("word", "true"), ("number", "1.5e3"), ("string", "'y'")]),
    ("rank = 16x", [("key", "rank"), ("number", "16x")]),
])  # fmt: skip
def test_words_of_a_line(line: str, expected: list[tuple[str, str]]) -> None:
    assert [(sort, line[start:stop]) for start, stop, sort in token_spans(line)] == expected


@given(st.lists(st.sampled_from("ab"), max_size=6), st.lists(st.sampled_from("ab"), max_size=6))
def test_lines_that_stay(before: list[str], after: list[str]) -> None:
    top, below = same_ends(before, after)
    assert top + below <= min(len(before), len(after))
    assert before[:top] == after[:top]
    assert below == 0 or before[-below:] == after[-below:]


def _choices_of_the_schema() -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    waiting, seen = (
        [cls for cls in msgspec.Struct.__subclasses__() if SCHEMA in cls.__module__ and cls.__module__ != SETTINGS],
        set(),
    )
    while waiting:
        struct = waiting.pop()
        if struct in seen:
            continue
        seen.add(struct)
        waiting += struct.__subclasses__()
        for name, hint in typing.get_type_hints(struct).items():
            for option in (hint, *typing.get_args(hint)):
                if typing.get_origin(option) is typing.Literal:
                    known.setdefault(name, set()).update(map(str, typing.get_args(option)))
    return known


def _keys(outline: Outline) -> list[str]:
    return [key_of_entry(entry) for entry in outline.entries()]


def _group(outline: Outline, key: str) -> FormGroup:
    return next(entry for entry in outline.entries() if isinstance(entry, FormGroup) and entry.key == key)


def test_keys_that_are_not_set_are_folded_and_the_form_opens_at_the_first_error() -> None:
    text = PRESET + "[run]\nkind = 'train'\n"
    outline = Outline()
    outline.take(form_of(text), anew=True)
    assert "model.hidden_size" in _keys(outline)
    assert "model.q_lora_rank" not in _keys(outline)
    assert f"[model{UNSET}]" in _keys(outline)
    outline.reveal("model.q_lora_rank")
    assert "model.q_lora_rank" in _keys(outline)
    outline.open(_group(outline, f"model{UNSET}"), wanted=False)
    # A key that gets a value meanwhile is shown with the others.
    outline.take(form_of(text.replace("[run]", "q_lora_rank = 512\n[run]")))
    keys = _keys(outline)
    assert keys.index("model.q_lora_rank") < keys.index(f"[model{UNSET}]")
    outline = Outline()
    outline.take(form_of(PRESET + "[run]\nkind = 'train'\n"), anew=True)
    outline.open(_group(outline, "parallel"), wanted=True)
    assert "parallel.sequence_parallel" in _keys(outline)
    assert (outline.key_at_line(4), outline.key_at_line(99)) == ("model.hidden_size", "run.kind")
    training = PRESET + "[run]\nkind = 'train'\n"
    assert first_key(form_of(training)) == "run.batch_size"
    for text, key in (
        (training.replace("hidden_size = 64\n", ""), "model.hidden_size"),
        (training + "precision = 'bf61'\n", "run.precision"),
    ):
        assert first_key(form_of(text), Draft(text, "n").problems) == key
    assert stepped(_field("bool", "true"), 1) == "false"
    assert stepped(_field("choice", "a", choices=("a", "b")), -1) == "b"
    assert stepped(_field("choice", "x", choices=("a", "b")), -1) == "b"
    assert stepped(_field("float", "0.9", minimum=0, maximum=1), 1) == "0.95"
    assert stepped(_field("float", "1.0", minimum=0, maximum=1), 1) is None
    assert stepped(_field("float", "0.05", minimum=0, minimum_excluded=True), -1) is None
    assert stepped(_field("int", None, minimum=1), 1) == "1"
    assert stepped(_field("int", "four"), 1) is None
    assert stepped(_field("text", "x"), 1) is None
    choices = _choices_of_the_schema()
    assert {"precision", "optimizer", "quantization", "strategy"} <= set(choices)
    unexplained = {name: values - set(choice_words().get(name, {})) for name, values in choices.items()}
    assert {name: values for name, values in unexplained.items() if values} == {}


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PresetFile:
    monkeypatch.chdir(tmp_path)
    return preset_at(Path("presets/tiny.toml"))


async def test_wrong(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        screen.open.put("run.batch_size", "8")
        screen.open.put("run.precision", "bf61-mixed")
        screen.form.go_to("run.precision")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture


async def test_offers_of_a_process(picture: SnapshotAssertion, found: PresetFile, tmp_path: Path) -> None:
    line = "torchrun --nproc_per_node 2 train.py --per_device_train_batch_size 6 --bf16 --max_seq_length 512"
    sample = scenes.sample(scenes.gpu(0, scenes.process(77, 20 * GIB, line)))
    async with editor(tmp_path, found=found, samples=[sample]) as (app, pilot, _):
        await pilot.press("ctrl+n", "end", "enter")
        await settle(app, pilot)
        assert app.parts.export.picture() == picture
