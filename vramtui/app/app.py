"""The dashboard: its features, one handler for each message, and the actions of every screen."""

import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App, SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import BindingsMap
from textual.screen import ModalScreen, Screen

from vramtui.app import context
from vramtui.app.features import Features
from vramtui.app.help.controller import commands
from vramtui.app.keys import APP_BINDINGS, FLEET, HOSTS_BINDINGS, NOTICE, REPLAY_BINDINGS, REPLAY_KEYS, is_refused
from vramtui.app.services import Services, StartOptions, session_of
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.terminal.cell_painter import BRIEF, CellPainter
from vramtui.app.terminal.terminal_driver import KeyQueue, is_behind, suspend_job
from vramtui.app.terminal.textual_private import ClosedScreens, call_after, give_memory_back
from vramtui.app.themes import Colours
from vramtui.app.timeline.trace_jobs import TraceJobs
from vramtui.app.ui.view_screen import NoticeLine
from vramtui.app.watch.screen import Watch
from vramtui.core.observation.readings import Sample, Source, TrafficSource, answerer
from vramtui.monitor.jobs import Presets
from vramtui.monitor.poller import Poller
from vramtui.monitor.session import MonitorSession

if TYPE_CHECKING:
    from vramtui.monitor.replay import Recorded

HEAD_START = 0.12  # seconds to wait for the first answer: quicker than to draw an empty screen first
INTERRUPTED = 130
STARTED = 5.0  # seconds after which memory that only a start needs is free
LEAVING = 1.0  # seconds for keeping runs while the dashboard ends


class Dashboard(App[None]):
    """The terminal dashboard. `presets` are read after the first paint; `poller` reads `source`, if it has begun."""

    TITLE = "vramtui"
    BINDINGS = APP_BINDINGS
    CSS_PATH = Path(__file__).with_name("app.tcss")  # absolute: subclasses may be elsewhere
    action_replay: Callable[..., object]
    action_replay_seek: Callable[..., object]

    def __init__(
        self,
        source: Source,
        presets: Presets,
        *,
        poller: Poller | None = None,
        interval: float = 1.0,
        services: Services | None = None,
        start: StartOptions | None = None,
    ) -> None:
        start = start or StartOptions()
        self.settings, now = start.settings, start.now
        self.leave: Callable[[int], None] | None = None
        self.next: tuple[str, ...] = ()
        self.colours = Colours(self, self.settings.dashboard.theme, self.draw)
        super().__init__(ansi_color=True if self.colours.plain else None)
        self.colours.register()
        self.animation_level = "none"
        self._keys_in_order = KeyQueue(self, super().on_event)
        self.feed = context.FeedStatus(interval, start.banner or "", now, answerer(source))
        self.poller = poller or Poller(source, interval)
        self.painter = CellPainter(self, self.colours)
        self.closed_screens = ClosedScreens(self, self.painter.forget_spots)
        self.redraw = context.RedrawThrottle(self, self.draw, now)
        self.screens = context.ScreenRouter(self, self.draw)
        services = services or Services()
        self._vanish, self._view_only = services.leave, services.view_only
        traces = TraceJobs(self, services.tracer, self.redraw)
        predictor = services.predictor(start.estimator, traces.store, lambda: self.call_later(self.redraw.soon))
        session = session_of(source, services, predictor, self.settings, interval)
        self.state = DashboardState(session, start.hint, self.settings.columns)
        self.notices = NoticeLine(self, now)
        measure = source.measure_traffic if isinstance(source, TrafficSource) else None
        common = self.state, self.redraw, self.screens, now, interval, self.notices
        self.shared = context.AppContext(self, *common, services.keep_settings, measure, services.environment)
        wipe = self.painter.frame.forget
        self.parts = Features(self.shared, services, traces, settings=self.settings, presets=presets, forget_frame=wipe)
        self.screens.makers, parts = self.parts.screens, self.parts
        self.action_show, self.action_edit = parts.editor.show, parts.editor.edit
        self.action_edit_outside, self.action_record = parts.editor.edit_outside, parts.recording.toggle
        self.action_problems, self.action_help = parts.help.show_problems, parts.help.show_keys
        self.action_snapshot, self.action_presets = parts.export.save, parts.panel.choose_preset
        self.action_step, self.action_undo = parts.panel.step, parts.panel.undo
        if services.fleet is not None:
            self.parts.watch_fleet(services.fleet, self.feed)
            self._bindings = BindingsMap.merge([BindingsMap(HOSTS_BINDINGS), self._bindings])
        if start.preset is not None:
            self.state.show_preset(start.preset)

    @property
    def session(self) -> MonitorSession:
        return self.state.session

    def play(self, recording: "Recorded", clock: Callable[[], float] = time.monotonic) -> None:
        replay = self.parts.play(recording, clock)
        self.action_replay, self.action_replay_seek = replay.move, replay.ask_where
        self.feed.banner = " · ".join(filter(None, (self.feed.banner, REPLAY_KEYS)))
        self._bindings = BindingsMap.merge([BindingsMap(REPLAY_BINDINGS), self._bindings])

    async def on_event(self, event: events.Event) -> None:
        """Let keys and pasted text wait for each other."""
        if not await self._keys_in_order.takes(event):
            await super().on_event(event)

    def on_key(self, event: events.Key) -> None:
        """Say of a letter that nothing has taken that it has no meaning here."""
        if event.is_printable and not getattr(self.screen.active_bindings.get(event.key), "enabled", False):
            self.notify(f"{event.character} has no use here (? lists the keys).", timeout=2)

    def get_default_screen(self) -> Screen[None]:
        return Watch(self.shared, self.parts.signals, self.parts.watch_questions)

    def on_mount(self) -> None:
        """Follow the theme, watch the clock, and draw the present data."""
        self.colours.follow_theme()
        self.set_keymap(self.settings.keys)
        self.redraw.watch_clock(self._is_late, lambda: self.feed.until_late)
        first = self.poller.first_answer(HEAD_START) if self.poller.is_alive() else None
        if isinstance(first, Sample):
            self.state.take(first)
        self.draw()
        if self.parts.fleet is not None:
            self.screens.show(FLEET.name)

    def on_load(self) -> None:
        """Start the poller or the recording while the screen is being built."""
        if self.parts.replay is not None:
            self.parts.replay.begin()
        else:
            self.poller.deliver_to(lambda result: self.post_message(context.message_of(result)))
            if self.poller.ident is None:
                self.poller.start()

    def stop_reading(self) -> None:
        """Stop all work; wait up to a second for writes to a disk."""
        self.poller.stop()
        if self._vanish is not None:
            self._vanish()
        self.session.close()
        if self.parts.fleet is not None:
            self.parts.fleet.finish_runs(LEAVING)
        self.session.finish_runs(LEAVING)
        self.parts.close()

    async def action_quit(self) -> None:
        self.go(0)

    def action_interrupt(self) -> None:
        self.go(INTERRUPTED)

    def action_open_demo(self) -> None:
        self.next = (sys.executable, "-m", "vramtui", *sys.argv[1:], "--demo")
        self.go(0)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the demo only if no GPU was ever read."""
        unread = bool(self.feed.failure) and self.state.sample is None
        return unread if action == "open_demo" else super().check_action(action, parameters)

    def go(self, code: int) -> None:
        if not self.parts.editor.asks_first(lambda: self._end(code)):
            self._end(code)

    def _end(self, code: int) -> None:
        """End the process; in tests only the app."""
        if self.leave is not None:
            self.leave(code)
        self.stop_reading()
        self.exit(return_code=code)

    def get_css_variables(self) -> dict[str, str]:
        self.theme_variables = self.colours.variables(super().get_css_variables())
        return self.theme_variables

    def _display(self, screen: Screen[object], renderable: object) -> None:
        """Send only the cells that differ from what the terminal shows. Marks around a brief update, which a terminal
        with synchronized output would get, are often a third of it.
        """
        reduced, driver = self.painter.reduced(renderable), self._driver
        if not isinstance(reduced, str) or driver is None:
            super()._display(screen, reduced)  # type: ignore[arg-type]  # rich's renderable
            return
        if len(reduced) > BRIEF:
            self._begin_update()
        driver.write(reduced)
        if len(reduced) > BRIEF:
            self._end_update()
        driver.flush()

    def on_resize(self, event: events.Resize) -> None:
        """The terminal may have cut, moved or wiped what it showed."""
        self.painter.frame.forget()
        # Textual ignores a terminal that has its old size again by now.
        if self._size == event.size and self.screen_stack:
            self.screen.refresh()

    async def run_action(self, action: Any, *where: Any, **named: Any) -> bool:  # noqa: ANN401 - as it came
        """Run the action of a key, a click or the palette, if it is allowed."""
        if self._view_only and is_refused(action):
            self.notify(NOTICE)
            return True
        return await super().run_action(action, *where, **named)

    def action_command_palette(self) -> None:
        from vramtui.app.ui.chooser import ActionChooser

        if isinstance(self.screen, ModalScreen):
            return
        actions = list(self.get_system_commands(self.screen))
        context.ask(self, ActionChooser(actions), lambda at: self.call_later(actions[int(at)].callback))

    def _refresh_notifications(self) -> None:
        self.notices.refresh()

    def pop_screen(self) -> AwaitComplete:
        self.closed_screens.collect_soon()
        return super().pop_screen()

    def on_sample_taken(self, message: context.SampleTaken) -> None:
        """Give every sample to the session and the features; the screen draws up to two a second."""
        if self.parts.fleet is not None and not self.parts.fleet.is_current(message.sample):  # another host's
            return
        try:
            self.state.take(message.sample)
            self.parts.on_sample(message.sample)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            self.on_read_failed(context.ReadFailed(f"a reading cannot be used: {error}"))
            return
        self.feed.answer()
        self.redraw.soon()

    def on_source_stuck(self) -> None:
        self.session.pause_sampling()
        self.feed.stall()
        self._mark_stale()

    def on_read_failed(self, message: context.ReadFailed) -> None:
        self.feed.fail(message.message, message.hint)
        self._mark_stale()
        self.parts.presets.on_sample()

    def _is_late(self) -> bool:
        """Check the poller; return whether the screen has to change with the clock."""
        self.poller.check()
        if self.feed.failed:
            self.state.mark_stale(self.shared.clock(), self.feed.failed)
        return bool((self.feed.failed and self.state.sample) or self.parts.late(self.feed))

    def _mark_stale(self) -> None:
        self.state.mark_stale(self.shared.clock(), self.feed.failed or "no answer")
        self.draw()

    def on_presets_read(self, message: context.PresetsRead) -> None:
        self.parts.take_library(message.library)
        self.state.take_presets((), message.library)
        call_after(self, STARTED, give_memory_back)
        self.feed.notes = message.problems
        self.draw()

    def draw(self) -> None:
        """Draw everything; on the way to another place in a recording only the progress."""
        self.redraw.begins()
        screen, replay = self.screens.to_draw(), self.parts.replay
        if screen is None or self.colours.palette is None or is_behind(self._driver):
            return
        if replay is None or replay.feed.seeking is None or screen.view.sample is None:
            view = self.parts.completed(self.state.view(), self.feed)
            with self.painter.together():
                screen.take(view, self.colours.palette)
            if view.sample is not None:
                self.redraw.is_drawn()
        if replay is not None:
            replay.draw_bar(screen, self.colours.palette)

    def action_pause(self) -> None:
        if self.parts.replay is not None:
            self.parts.replay.toggle()
        else:
            self.state.toggle_pause()
            self.draw()

    def action_change_theme(self) -> None:
        from vramtui.app.ui.chooser import ThemeChooser

        chooser, keep = ThemeChooser(self.available_themes, self.theme), self.shared.keep
        context.ask(self, chooser, lambda name: keep({"dashboard.theme": name}))

    def action_suspend_process(self) -> None:
        suspend_job(self)

    def action_redraw(self) -> None:
        self.painter.frame.forget()
        self.screen.refresh()

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        yield from commands(self, self.screens.current)
        every = () if self._view_only else super().get_system_commands(screen)
        yield from (SystemCommand(one.title, "", one.callback) for one in every if one.title == "Screenshot")
