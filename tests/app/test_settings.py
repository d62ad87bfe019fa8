from pathlib import Path

import msgspec
import pytest

from tests.app.driver import climbing, dashboard, give, press, settle
from vramtui.app.help.controller import keys_shown
from vramtui.app.help.dialog import SECTIONS, bindings_of, check_keys
from vramtui.app.live import AlertFeature
from vramtui.core.base.errors import UserError
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.readings import Gpu
from vramtui.core.schema.settings import AlertRules, DashboardSettings, Settings


async def test_a_key_and_a_theme_of_the_settings() -> None:
    settings = Settings(keys={"watch.pause": "x,f5", "app.help": "f1"})
    async with dashboard(climbing(), settings=settings) as (app, pilot):
        await press(app, pilot, "space")
        assert not app.state.paused
        await pilot.press("x")
        assert app.state.paused
        await pilot.press("f5")
        assert not app.state.paused
        shown = {binding.id: keys for keys, binding in keys_shown(app, app.screens.current)}
        assert (shown["watch.pause"], shown["app.help"]) == ("x f5", "f1")
        await settle(app, pilot)
        assert "f1" in app.parts.export.picture()
    settings = Settings(dashboard=DashboardSettings(theme="vramtui-light"))
    async with dashboard(climbing(), settings=settings) as (app, _):
        app.colours.suit_terminal()
        assert app.theme == "vramtui-light"


@pytest.mark.parametrize(("keys", "sentence"), [
    ({"watch.puase": "x"}, "keys.watch.puase is not the name of a key (did you mean watch.pause?)"),
    ({"watch.pause": ""}, "keys.watch.pause is '': keys are written as"),
    ({"watch.pause": "x,,y"}, "keys are written as"),
])  # fmt: skip
def test_a_key_of_no_name_is_a_sentence(keys: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        check_keys(keys)
    assert sentence in str(caught.value)


def test_every_panels_keys_have_names() -> None:
    named = [binding.id for section in SECTIONS for binding in bindings_of(section)]
    assert all(named)
    assert {"table.down", "estimate.more", "watch.snapshot", "app.quit"} <= set(named)
    check_keys({str(name): "f5" for name in named})


async def test_a_lost_card_is_said_once_and_stands_in_the_header() -> None:
    before = climbing()
    async with dashboard(before, notifications=True) as (app, pilot):
        last = before[-1]
        for seconds in range(1, 4):
            lost = Gpu(index=0, uuid="GPU-lost", name="NVIDIA H100", state="lost", reason="it fell off the bus")
            later = msgspec.structs.replace(last, taken_at=last.taken_at + seconds, gpus=(*last.gpus, lost))
            await give(app, pilot, later)
        assert [toast.message for toast in app.announced] == ["GPU 0 is lost: it fell off the bus"]
        assert "1&#160;alert" in app.parts.export.picture()
        await pilot.press("!")
        await pilot.pause()
        assert "fell&#160;off&#160;the&#160;bus" in app.parts.export.picture()


async def test_a_command_hears_of_it(tmp_path: Path) -> None:
    file = tmp_path / "heard"
    rules = AlertRules(bell=True, notification=True, command=f'echo "$VRAMTUI_ALERT_KIND $VRAMTUI_ALERT" > {file}')
    alert = Alert(kind="growth", gpu_uuid="", gpu_index=0, process=None, sentence="it grows \x1b[2J")
    async with dashboard(climbing()) as (app, pilot):
        AlertFeature(app.shared, rules).say([alert])
        while not file.exists() or not file.read_text():
            await pilot.pause(0.01)
    assert file.read_text() == "growth it grows ␛[2J\n"
