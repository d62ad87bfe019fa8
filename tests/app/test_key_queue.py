"""Keys that come at once go to what the first of them opens."""

import pytest
from textual import events
from textual.widgets import Input

from tests.app import scenes
from tests.app.driver import Driver, dashboard, settle
from vramtui.app.terminal.terminal_driver import TerminalParser

NAMES = {"/": "slash", ":": "colon", "\x10": "ctrl+p"}


async def at_once(driver: Driver, keys: str) -> None:
    """As one read gives them: all are in the app's queue before it has looked at the first."""
    app, pilot = driver
    for character in keys:
        name = NAMES.get(character, character)
        app.post_message(events.Key(name, character if character.isprintable() else None))
    for _ in range(40):
        await pilot.pause(0.01)
    await settle(app, pilot)


@pytest.mark.parametrize(
    ("place", "typed"),
    [("1", ("/qwen", "/user:root", "pqwen", "mqwen", "\x10quit")), ("2", ("gqsr", "aqsr", "bqsr")), ("4", ("/qsr",))],
)
@pytest.mark.slow
async def test_text_behind_an_opening_key_is_typed_into_what_it_opens(place: str, typed: tuple[str, ...]) -> None:
    async with dashboard([scenes.usual()], preset="llama-3.1-8b-lora") as driver:
        app, pilot = driver
        await pilot.press(place)
        await settle(app, pilot)
        for keys in typed:
            await at_once(driver, keys)
            assert isinstance(app.focused, Input), keys
            assert app.focused.value == keys[1:]
            assert app.is_running
            await pilot.press("escape")
            await settle(app, pilot)
            assert not isinstance(app.focused, Input), keys


async def test_keys_behind_one_that_closes_an_input_go_to_what_is_there_then() -> None:
    async with dashboard([scenes.usual()]) as driver:
        app, pilot = driver
        await pilot.press("slash")
        await settle(app, pilot)
        app.post_message(events.Key("escape", None))
        await at_once(driver, "/gpu")
        assert isinstance(app.focused, Input)
        assert app.focused.value == "gpu"


async def test_pasted_text_outside_an_input_is_passed_over() -> None:
    async with dashboard([scenes.usual()]) as driver:
        app, _ = driver
        app.post_message(events.Paste("qsrX"))
        await at_once(driver, "/a")
        app.post_message(events.Paste("nna"))
        await at_once(driver, "!")
        assert isinstance(app.focused, Input)
        assert app.focused.value == "anna!"


@pytest.mark.parametrize(
    ("read", "keys"),
    [
        ("\x1bpq", ["escape", "p", "q"]),
        ("\x1b/user:a", ["escape", "slash", "u", "s", "e", "r", "colon", "a"]),
        ("\x1b[A\x1bx", ["up", "escape", "x"]),
        ("\x1b1M", ["escape", "1", "M"]),  # Textual takes Esc and a digit for a letter of a Mac's Option key
        ("\x1b[112;3u", ["alt+p"]),  # a terminal that tells Alt and Esc apart
    ],
)
def test_escape_and_a_key_in_one_read_are_two_keys(read: str, keys: list[str]) -> None:
    parser = TerminalParser()
    made = [*parser.feed(read), *parser.feed("")]
    assert [event.key for event in made if isinstance(event, events.Key)] == keys
