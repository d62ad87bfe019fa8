"""The keys of the whole dashboard; those of a panel stand with it. Each has an id, so all can be remapped.

The order is that of the key bar: what does not fit its line is left out from the right, but for the last two.
"""

from textual.binding import Binding, BindingType

from vramtui.app.screen_registry import SCREENS


def _key(  # noqa: PLR0917 - a table of them reads best in columns
    key: str, action: str, name: str, identity: str, tooltip: str, display: str | None = None
) -> Binding:
    """A key that the key bar shows as `name`; two with the same name stand on both sides of it."""
    return Binding(key, action, name, id=identity, tooltip=tooltip, key_display=display)


def _quiet(key: str, action: str, what: str, identity: str, display: str | None = None) -> Binding:
    """A key that only the help and the command palette name."""
    return Binding(key, action, what, id=identity, tooltip=what, key_display=display, show=False)


def _choosing(screen: str) -> tuple[Binding, ...]:
    """The keys of a screen that get another preset."""
    return (
        _key("p", "app.presets", "preset", f"{screen}.presets", "Choose a preset to estimate"),
        _key("e", "app.edit", "edit", f"{screen}.edit", "Edit the preset in the panel"),
    )


def _batch(screen: str) -> tuple[Binding, ...]:
    """The keys of a screen that step the batch."""
    less, more = f"{screen}.batch_less", f"{screen}.batch_more"
    return (
        _key("left_square_bracket", "app.step_size(-1)", "batch", less, "One sequence less a batch", "["),
        _key("right_square_bracket", "app.step_size(1)", "batch", more, "One sequence more a batch", "]"),
    )


def _length(screen: str) -> tuple[Binding, ...]:
    """The keys of a screen that step the sequence length."""
    return (
        _key("left_curly_bracket", "app.step_length(-1)", "seq", f"{screen}.seq_less", "A shorter sequence", "{"),
        _key("right_curly_bracket", "app.step_length(1)", "seq", f"{screen}.seq_more", "A longer sequence", "}"),
    )


def _turning(screen: str) -> Binding:
    return _key("v", "page", "view", f"{screen}.page", "Next page of a narrow terminal")


def _taking(screen: str) -> Binding:
    return _key("s", "app.snapshot", "snapshot", f"{screen}.snapshot", "Write what is shown to files")


def _outside(screen: str) -> Binding:
    return _quiet("E", "app.edit_outside", "Edit the preset in $VISUAL or $EDITOR", f"{screen}.edit_outside", "E")


def _undoing(screen: str) -> Binding:
    return _quiet("u", "app.undo", "Back to what the preset's file says", f"{screen}.undo")


def _problems(screen: str) -> Binding:
    return _quiet("exclamation_mark", "app.problems", "What could not be done, and why", f"{screen}.problems", "!")


WATCH_BINDINGS: list[BindingType] = [
    _turning("watch"),
    *_choosing("watch"),
    _key("m", "app.match", "match", "watch.match", "Say which preset the chosen process runs"),
    *_batch("watch"),
    _key("slash", "app.filter", "filter", "watch.filter", "Show only rows that hold some words", "/"),
    _taking("watch"),
    _key("space", "app.pause", "pause", "watch.pause", "Hold what is shown; the history goes on"),
    _key("i", "app.details", "info", "watch.details", "All about the chosen process and its GPU"),
    *_length("watch"),
    _outside("watch"),
    _quiet("S", "app.snapshot_options", "Choose formats and folder of snapshots", "watch.snapshot_options"),
    _quiet("x", "app.explain", "Explain the estimate part by part", "watch.explain"),
    _quiet("tab", "app.focus_next", "Give the keys to the next panel", "watch.focus_next"),
    _undoing("watch"),
    _quiet("less_than_sign", "app.sort(-1)", "Sort by the column to the left", "watch.sort_before", "<"),
    _quiet("greater_than_sign", "app.sort(1)", "Sort by the column to the right", "watch.sort_next", ">"),
    _quiet("o", "app.reverse", "The other order", "watch.reverse"),
    _quiet("enter", "app.details", "All about the chosen row", "watch.enter", "enter"),
    _quiet("t", "app.span", "Another time span of the graph", "watch.span"),
    _quiet("X,f9", "app.signal", "Send the chosen process a signal, after a question", "watch.signal", "X"),
    _quiet("c", "app.copy_pid", "Copy the chosen process's pid", "watch.copy_pid"),
    _quiet("C", "app.copy_command", "Copy the chosen process's command", "watch.copy_command", "C"),
    _problems("watch"),
    _quiet("escape", "app.let_go", "Let the rows move again; then show all of them", "watch.let_go"),
]
TIMELINE_BINDINGS: list[BindingType] = [
    _turning("timeline"),
    _key("t", "app.trace", "trace", "timeline.trace", "Trace the preset with PyTorch on fake tensors"),
    _key("x", "app.cancel_trace", "cancel", "timeline.cancel", "Call the running trace off"),
    *_choosing("timeline"),
    *_batch("timeline"),
    _taking("timeline"),
    *_length("timeline"),
    _outside("timeline"),
    _undoing("timeline"),
    _quiet("space", "app.pause", "Hold what is shown; the history goes on", "timeline.pause"),
    _problems("timeline"),
    _quiet("escape", "app.leave_timeline", "Call the running trace off; without one, back to Watch", "timeline.leave"),
]
PLAN_BINDINGS: list[BindingType] = [
    _turning("plan"),
    *_choosing("plan"),
    _key("a", "app.choose_axis(True)", "axes", "plan.across", "Choose what is varied across"),
    _key("A", "app.choose_axis(False)", "axes", "plan.down", "Choose what is varied down", "A"),
    _key("g", "app.choose_card", "card", "plan.card", "Choose the card: this machine's, or any that is known"),
    _key("b", "app.choose_beside", "beside", "plan.beside", "Set another preset or this one's file beside it"),
    _key("enter", "app.take_variant", "take", "plan.take", "Let Watch estimate the cell's variant", "enter"),
    _key("w", "app.save_variant", "save", "plan.save", "Save the cell's variant as a preset of your own"),
    _key("t", "changes", "changes", "plan.changes", "Choose among the changes that free memory, and back to the map"),
    _key("f", "app.plan_edge", "edge", "plan.edge", "Go to the last cell of the row that fits"),
    _taking("plan"),
    _quiet("x", "app.swap_axes", "Columns become rows", "plan.swap"),
    _quiet("home", "app.plan_home", "Back to the cell of the preset's own values", "plan.home"),
    _outside("plan"),
    _undoing("plan"),
    _problems("plan"),
    _quiet("escape", "app.leave_plan", "Back to Watch", "plan.leave"),
]
HISTORY_BINDINGS: list[BindingType] = [
    _key("enter", "app.open_run", "open", "history.open", "All about the chosen run", "enter"),
    _key("slash", "app.filter_runs", "filter", "history.filter", "Show only runs that hold some words", "/"),
    _key("s", "app.report_run", "report", "history.report", "Write the chosen run to files"),
    _key("d", "app.forget_run", "forget", "history.forget", "Remove the chosen run, after a question"),
    _key("less_than_sign", "app.sort_runs(-1)", "sort", "history.sort_before", "Sort by the column to the left", "<"),
    _key("greater_than_sign", "app.sort_runs(1)", "sort", "history.sort_next", "Sort by the column to the right", ">"),
    _key("o", "app.reverse_runs", "turn", "history.reverse", "The other order"),
    _problems("history"),
    _quiet("escape", "app.leave_history", "Show all runs again; then back to Watch", "history.leave"),
]
REPLAY_BINDINGS: list[BindingType] = [
    _key("space", "replay_toggle", "play", "replay.toggle", "Play or hold; at the end: play from the start"),
    _key("comma", "replay_step(-1)", "step", "replay.back", "Hold, one sample back", ","),
    _key("full_stop", "replay_step(1)", "step", "replay.on", "Hold, one sample further on", "."),
    _key("g", "replay_seek", "go to", "replay.seek", "Go to a time: 12:03:20, +90, -1m30s, 50%"),
    _key("left_parenthesis", "replay_speed(-1)", "speed", "replay.slower", "Slower, down to 1x", "("),
    _key("right_parenthesis", "replay_speed(1)", "speed", "replay.faster", "Faster, up to 60x", ")"),
    _quiet("shift+left", "replay_skip(-10)", "Ten seconds back", "replay.skip_back"),
    _quiet("shift+right", "replay_skip(10)", "Ten seconds on", "replay.skip_on"),
    _quiet("ctrl+left", "replay_skip(-60)", "A minute back", "replay.minute_back"),
    _quiet("ctrl+right", "replay_skip(60)", "A minute on", "replay.minute_on"),
]
APP_BINDINGS: list[BindingType] = [
    *(_quiet(place.key, f"show('{place.name}')", place.what, f"app.{place.name}") for place in SCREENS),
    _key("r", "record", "record", "app.record", "Record what is watched into a file; again: end the recording"),
    _key("question_mark", "help", "help", "app.help", "Every key and what it does", "?"),
    _key("q", "quit", "quit", "app.quit", "Leave; the terminal is as it was"),
    Binding(
        "ctrl+c", "interrupt", "Quit", id="app.interrupt", show=False, priority=True, tooltip="Leave with exit code 130"
    ),
    _quiet("K", "calibrate", "Let estimates go by what this host's runs teach, or no longer", "app.calibration"),
    _quiet("ctrl+t", "next_theme", "Dark, light, the terminal's own colours", "app.theme"),
    _quiet("ctrl+l", "redraw", "Draw everything again", "app.redraw"),
]
