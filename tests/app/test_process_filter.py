"""Filters: words anywhere, words of one column, and a filter that cannot be meant says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app import scenes
from tests.app.driver import dashboard, screen_text, settle
from vramtui.app.state.rows import FORMS, conditions, doubt, holds, pick_rows
from vramtui.app.state.view import ProcessRow

SERVER = scenes.process(4214, 1, "vllm serve --port 4213", user="annabel")


def row(**more: object) -> ProcessRow:
    process = scenes.process(4213, 1, scenes.TRAIN, user="Anna")
    fields = {"gpu": scenes.gpu(1), "process": process, "preset": "llama-3.1-8b-lora"} | more
    return ProcessRow("process", ("a", "b"), now=1, **fields)  # type: ignore[arg-type]  # fields of any type


@pytest.mark.parametrize(
    "wanted",
    ["", "user:anna", "USER:Anna", "gpu:1", "gpu:gpu-1", "pid:4213", "preset:lora", "cmd:train", "cmd:llama user:anna",
     "421", "anna llama", "a100 gpu:1", "user:", "gpu:", "preset: train"],
)  # fmt: skip
def test_a_row_that_fulfils_it(wanted: str) -> None:
    assert holds(row(), conditions(wanted))


@pytest.mark.parametrize(
    "wanted",
    ["user:ann", "user:bo", "gpu:0", "gpu:11", "pid:421", "pid:42130", "preset:qwen", "cmd:anna", "user:anna gpu:0",
     "gpx:1", "nobody"],
)  # fmt: skip
def test_a_row_that_does_not(wanted: str) -> None:
    assert not holds(row(), conditions(wanted))


def test_a_form_asks_for_its_own_column() -> None:
    """A bare word is found in another's command as well; the exact form is not."""
    both = [row(), row(process=SERVER)]
    assert [one.process and one.process.pid for one in both if holds(one, conditions("4213"))] == [4213, 4214]
    assert [one.process and one.process.pid for one in both if holds(one, conditions("pid:4213"))] == [4213]
    assert [one.process and one.process.user for one in both if holds(one, conditions("user:anna"))] == ["Anna"]


@pytest.mark.parametrize(
    ("wanted", "users"),
    [("user:a", ["Anna", "annabel"]), ("user:anna", ["Anna"]), ("user:annab", ["annabel"]), ("user:nn", []),
     ("user:a cmd:vllm", ["annabel"])],
)  # fmt: skip
def test_a_user_is_found_while_the_name_is_typed(wanted: str, users: list[str]) -> None:
    both = [row(), row(process=SERVER)]
    kept = [row.process for row in pick_rows(both, conditions(wanted))]
    assert [process.user for process in kept if process] == users


def test_bytes_that_are_nobodys_have_a_gpu_only() -> None:
    rest = row(process=None, preset=None)
    assert holds(rest, conditions("gpu:1"))
    assert not any(holds(rest, conditions(f"{form}:1")) for form in FORMS if form != "gpu")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ("gpx:0", "There is no gpx: (did you mean gpu?); there are user:, gpu:, pid:, preset:, cmd:."),
        ("usr:anna", "(did you mean user?)"),
        ("gpu:first", "gpu:first is invalid: a GPU is a number or a uuid."),
        ("pid:train.py", "pid:train.py is invalid: a pid is a number."),
        ("gpu:0", ""),
        ("gpu:GPU-1", ""),
        ("user:nobody", ""),
        ("train", ""),
        ("gpx:", ""),
        ("8b:0", ""),
    ],
)
def test_what_cannot_be_meant_is_said(wanted: str, words: str) -> None:
    told = doubt(wanted)
    assert (words in told) if words else not told


@given(st.text(alphabet=st.sampled_from("ugp:0a- ;[\x1b")), st.booleans())
def test_any_text_is_a_filter(wanted: str, owned: bool) -> None:
    holds(row() if owned else row(process=None, preset=None), conditions(wanted))
    doubt(wanted)


async def test_the_screen_says_it_where_the_rows_would_be() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await pilot.press("slash")
        await settle(app, pilot)
        assert "user:anna gpu:0 pid:123 preset:llama cmd:train" in screen_text(app)
        await pilot.press(*"gpx:0")
        await settle(app, pilot)
        shown = " ".join(screen_text(app).replace("│", " ").split())
        assert "There is no gpx: (did you mean gpu?)" in shown
        await pilot.press(*(["backspace"] * 5), *"gpu:1")
        await settle(app, pilot)
        assert [one.process.pid for one in app.state.view().rows if one.process] == [5120]


async def test_the_cursor_comes_back_to_its_process_when_a_filter_shows_it_again() -> None:
    """`user:bo` is typed letter by letter, and on the way hides the row that has the cursor."""

    def marked() -> str:
        return next(line for line in screen_text(driver[0]).splitlines() if "│▸" in line and "▐" not in line)

    trains = [scenes.process(pid, 9 << 30, scenes.TRAIN, user=user) for pid, user in ((4213, "anna"), (4214, "bo"))]
    async with dashboard([scenes.sample(scenes.gpu(0, *trains))]) as driver:
        app, pilot = driver
        await settle(app, pilot)
        before = marked()
        for keys in (("slash", *"4214"), ("escape",), ("slash", *"user:bo"), ("enter",), ("escape",)):
            await pilot.press(*keys)
            await settle(app, pilot)
            if "slash" in keys:
                assert marked().split()[1] != before.split()[1]
        assert marked() == before
        assert "llama-3.1-8b-lora" in screen_text(app)
