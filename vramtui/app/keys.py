"""The keys of the dashboard; those of a panel are in its file. Each has an id, so all can be remapped.

The order is that of the key bar, which leaves out from the right what does not fit, except for the last two. The last
part lists the actions that --view-only refuses.
"""

from typing import NamedTuple

from textual.binding import Binding, BindingType


class ScreenEntry(NamedTuple):
    """A whole screen: its key, its name in the code, its title in the header, and its description."""

    key: str
    name: str
    title: str
    what: str


SCREENS = (
    ScreenEntry("1", "watch", "Watch", "Watch: what uses the GPUs' memory now"),
    ScreenEntry("2", "plan", "Plan", "Plan: what fits where, before it runs"),
    ScreenEntry("3", "timeline", "Timeline", "Timeline: the preset phase by phase"),
    ScreenEntry("4", "history", "History", "History: past runs and their prediction errors"),
)
FIRST = SCREENS[0].name
FLEET = ScreenEntry("5", "fleet", "Fleet", "Fleet: every GPU of every host")  # with several hosts


def _key(key: str, action: str, name: str, identity: str, tooltip: str, display: str | None = None) -> Binding:
    """Return a key that the key bar shows as `name`; two keys of the same name are shown around it."""
    return Binding(key, action, name, id=identity, tooltip=tooltip, key_display=display)


def _quiet(key: str, action: str, what: str, identity: str, display: str | None = None) -> Binding:
    """Return a key that only the help and the command palette show."""
    return Binding(key, action, what, id=identity, tooltip=what, key_display=display, show=False)


_PREDICTING: set[str | None] = set()
_STEPPING: set[str | None] = set()
_WRITING = {"deliver_screenshot", "screenshot"}  # Textual's


def _predicts(*bindings: Binding) -> tuple[Binding, ...]:
    """Mark keys that have no use when predictions are off."""
    _PREDICTING.update(one.id for one in bindings)
    return bindings


def _steps(*bindings: Binding) -> tuple[Binding, ...]:
    """Mark keys that change the preset in the panel."""
    _STEPPING.update(one.id for one in bindings)
    return _predicts(*bindings)


def _writes(binding: Binding) -> Binding:
    """Mark a key whose action --view-only refuses."""
    _WRITING.add(action_name(binding.action))
    return binding


def action_name(action: object) -> str:
    """Return the name of an action, as a binding names it (`screen.trace`, `app.step('batch', 1)`) or parsed."""
    name = action.partition("(")[0] if isinstance(action, str) else str(action[1]) if isinstance(action, tuple) else ""
    return name.rpartition(".")[2].strip()


def _choosing(screen: str) -> tuple[Binding, ...]:
    edits = _writes(_key("e", "app.edit", "edit", f"{screen}.edit", "Edit the preset in the panel"))
    chooses = _key("p", "app.presets", "preset", f"{screen}.presets", "Choose a preset to estimate")
    return *_predicts(chooses), *_steps(edits)


def _batch(screen: str) -> tuple[Binding, ...]:
    less, more = f"{screen}.batch_less", f"{screen}.batch_more"
    return _steps(
        _key("left_square_bracket", "app.step('batch size', -1)", "batch", less, "Batch −1", "["),
        _key("right_square_bracket", "app.step('batch size', 1)", "batch", more, "Batch +1", "]"),
    )


def _length(screen: str) -> tuple[Binding, ...]:
    less, more, step = f"{screen}.seq_less", f"{screen}.seq_more", "app.step('sequence length',"
    return _steps(
        _key("left_curly_bracket", f"{step} -1)", "seq", less, "Sequence length −1 step", "{"),
        _key("right_curly_bracket", f"{step} 1)", "seq", more, "Sequence length +1 step", "}"),
    )


def _turning(screen: str, words: str = "Next page (narrow terminals)") -> Binding:
    return _key("v", "page", "view", f"{screen}.page", words)


def _taking(screen: str) -> Binding:
    return _writes(_key("s", "app.snapshot", "snapshot", f"{screen}.snapshot", "Save a snapshot to files"))


def _changing(screen: str) -> tuple[Binding, ...]:
    outside = _quiet("E", "app.edit_outside", "Edit the preset in $VISUAL or $EDITOR", f"{screen}.edit_outside", "E")
    return _predicts(_writes(outside), _quiet("u", "app.undo", "Reset to the preset's file", f"{screen}.undo"))


def _problems(screen: str) -> Binding:
    return _quiet("exclamation_mark", "app.problems", "Alerts and errors", f"{screen}.problems", "!")


WATCH_BINDINGS: list[BindingType] = [
    _turning("watch", "Fold the estimate away; next page in narrow terminals"),
    *_choosing("watch"),
    *_predicts(
        _key("m", "match", "match", "watch.match", "Assign a preset to the selected process"),
        _writes(
            _key("t", "trace_process", "dry run", "watch.dry_run", "Dry run of the process's command (asks first)")
        ),
    ),
    *_batch("watch"),
    _key("slash", "filter_list", "filter", "watch.filter", "Filter rows", "/"),
    _taking("watch"),
    _key("space", "app.pause", "pause", "watch.pause", "Pause the display (recording continues)"),
    _key("i", "details", "info", "watch.details", "Details of the selected process and its GPU"),
    *_length("watch"),
    *_changing("watch"),
    _writes(_quiet("S", "snapshot_options", "Choose formats and folder of snapshots", "watch.snapshot_options")),
    *_predicts(
        _quiet("x", "explain", "Explain the estimate part by part", "watch.explain"),
        _quiet("w", "what_fits", "Which models fit the GPU's free memory now", "watch.what_fits"),
    ),
    _quiet("tab", "app.focus_next", "Focus next panel", "watch.focus_next"),
    _quiet("less_than_sign", "sort(-1)", "Sort by the column to the left", "watch.sort_before", "<"),
    _quiet("greater_than_sign,f6", "sort(1)", "Sort by the column to the right", "watch.sort_next", ">"),
    _quiet("o", "reverse_list", "Reverse order", "watch.reverse"),
    _quiet("enter", "enter_row", "Details of the row; open a group; save a derived estimate", "watch.enter", "enter"),
    _quiet("b", "group", "Group rows by job, user, GPU or process tree", "watch.group"),
    _quiet("T,f5", "tree", "Show the process tree (on/off)", "watch.tree", "T"),
    _quiet("M", "monitor", "Only the monitor, without predictions (on/off)", "watch.monitor", "M"),
    _quiet("f", "columns", "Choose the columns of the process table", "watch.columns"),
    _quiet("right,l", "fold(True)", "Open the selected group", "watch.unfold"),
    _quiet("left,h", "fold(False)", "Close the selected group", "watch.fold"),
    _quiet("z", "span", "Cycle the graph's time range", "watch.span"),
    _writes(_quiet("X,f9", "signal", "Send a signal to the selected process (asks first)", "watch.signal", "X")),
    _writes(_quiet("c", "copy_pid", "Copy the selected process's pid", "watch.copy_pid")),
    _writes(_quiet("C", "copy_command", "Copy the selected process's command", "watch.copy_command", "C")),
    _key("d", "app.open_demo", "demo", "watch.demo", "Open the demo (if no GPU can be read)"),
    _problems("watch"),
    _quiet("escape", "let_go", "Unfreeze sorting; then clear filter", "watch.let_go"),
]
TIMELINE_BINDINGS: list[BindingType] = [
    _turning("timeline"),
    _writes(_key("t", "trace", "dry run", "timeline.dry_run", "Dry run of the preset's own code on fake tensors")),
    _quiet("x", "cancel_trace", "Cancel the dry run", "timeline.cancel"),
    *_choosing("timeline"),
    *_batch("timeline"),
    _taking("timeline"),
    *_length("timeline"),
    *_changing("timeline"),
    _quiet("space", "app.pause", "Pause the display (recording continues)", "timeline.pause"),
    _problems("timeline"),
    _quiet("escape", "leave_timeline", "Cancel the dry run; without one, back to Watch", "timeline.leave"),
]
PLAN_BINDINGS: list[BindingType] = [
    _turning("plan"),
    *_choosing("plan"),
    _key("a", "choose_axis(True)", "axes", "plan.across", "Choose the horizontal axis"),
    _key("A", "choose_axis(False)", "axes", "plan.down", "Choose the vertical axis", "A"),
    _key(
        "g",
        "choose_card",
        "card",
        "plan.card",
        "Which card does it need: fits, spare and largest batch on every card; choose one",
    ),
    _key("b", "choose_beside", "compare", "plan.beside", "Compare with another preset, or with this one's file"),
    _key("enter", "take_variant", "apply", "plan.take", "Apply the cell's variant on Watch", "enter"),
    _writes(_key("w", "save_variant", "save", "plan.save", "Save the cell's variant as your own preset")),
    _key("t", "changes", "changes", "plan.changes", "Focus the changes that free memory; again: back to the map"),
    _key("f", "plan_edge", "limit", "plan.edge", "Go to the largest value of the row that fits"),
    _taking("plan"),
    _writes(
        _quiet("o", "run_on_cards", "This script on each card: runs it on emulated ones (asks first)", "plan.each_card")
    ),
    _quiet("x", "swap_axes", "Swap the axes", "plan.swap"),
    _quiet("home", "plan_home", "Go to the preset's own values", "plan.home"),
    *_changing("plan"),
    _problems("plan"),
    _quiet("escape", "leave_plan", "Back to Watch", "plan.leave"),
]
HISTORY_BINDINGS: list[BindingType] = [
    _key("enter", "open_run", "open", "history.open", "Details of the selected run", "enter"),
    _key("slash", "filter_list", "filter", "history.filter", "Filter runs", "/"),
    _writes(_key("s", "report_run", "report", "history.report", "Write a report of the selected run")),
    _writes(_key("d", "forget_run", "delete", "history.forget", "Delete the selected run (asks first)")),
    _key("less_than_sign", "sort_list(-1)", "sort", "history.sort_before", "Sort by the column to the left", "<"),
    _key("greater_than_sign", "sort_list(1)", "sort", "history.sort_next", "Sort by the column to the right", ">"),
    _key("o", "reverse_list", "reverse", "history.reverse", "Reverse order"),
    _problems("history"),
    _quiet("escape", "leave_list", "Clear the filter; then back to Watch", "history.leave"),
]
FLEET_BINDINGS: list[BindingType] = [
    _key("enter", "watch_host", "watch", "fleet.watch", "Watch the selected host; open the selected job", "enter"),
    _key("b", "fleet_jobs", "jobs", "fleet.jobs", "Show jobs of several ranks, or GPUs again"),
    _key("slash", "filter_list", "filter", "fleet.filter", "Filter hosts and GPUs", "/"),
    _key("less_than_sign", "sort_list(-1)", "sort", "fleet.sort_before", "Sort by the column to the left", "<"),
    _key("greater_than_sign", "sort_list(1)", "sort", "fleet.sort_next", "Sort by the column to the right", ">"),
    _key("o", "reverse_list", "reverse", "fleet.reverse", "Reverse order"),
    _problems("fleet"),
    _quiet("escape", "leave_list", "Clear the filter; then back to Watch", "fleet.leave"),
]
HOSTS_BINDINGS: list[BindingType] = [_quiet(FLEET.key, f"show('{FLEET.name}')", FLEET.what, "app.fleet")]
REPLAY_KEYS = "space play · , . step · g go to · ( ) speed"
REPLAY_BINDINGS: list[BindingType] = [
    _key("space", "pause", "play", "replay.toggle", "Play or pause; at the end: play from the start"),
    _key("comma", "replay('step', -1)", "step", "replay.back", "Pause, one sample back", ","),
    _key("full_stop", "replay('step', 1)", "step", "replay.on", "Pause, one sample forward", "."),
    _key("g", "replay_seek", "go to", "replay.seek", "Go to a time: 12:03:20, +90, -1m30s, 50%"),
    _key("left_parenthesis", "replay('faster', -1)", "speed", "replay.slower", "Slower, down to 1x", "("),
    _key("right_parenthesis", "replay('faster', 1)", "speed", "replay.faster", "Faster, up to 60x", ")"),
    _quiet("shift+left", "replay('skip', -10)", "Back 10 seconds", "replay.skip_back"),
    _quiet("shift+right", "replay('skip', 10)", "Forward 10 seconds", "replay.skip_on"),
    _quiet("ctrl+left", "replay('skip', -60)", "Back 1 minute", "replay.minute_back"),
    _quiet("ctrl+right", "replay('skip', 60)", "Forward 1 minute", "replay.minute_on"),
]
APP_BINDINGS: list[BindingType] = [
    *(_quiet(place.key, f"show('{place.name}')", place.what, f"app.{place.name}") for place in SCREENS),
    _writes(_key("r", "record", "record", "app.record", "Start or stop recording to a file")),
    _key("question_mark", "help", "help", "app.help", "Help: all keys", "?"),
    _key("q", "quit", "quit", "app.quit", "Quit"),
    _quiet("f10", "quit", "Quit", "app.quit_f10"),
    _quiet("ctrl+p,colon", "command_palette", "Search all actions", "app.palette", ":"),
    Binding(
        "ctrl+c", "interrupt", "Quit", id="app.interrupt", show=False, priority=True, tooltip="Quit with exit code 130"
    ),
    _quiet("ctrl+t", "change_theme", "Theme", "app.theme"),
    _quiet("ctrl+l", "redraw", "Redraw the screen", "app.redraw"),
    _writes(_quiet("ctrl+z", "suspend_process", "Suspend to the shell; fg continues", "app.suspend")),
]


def _typing(key: str, action: str, name: str, identity: str, tooltip: str = "") -> Binding:
    """Return a key that works while something is typed; without a tooltip it is only in the help."""
    return Binding(key, action, name, id=identity, tooltip=tooltip or name, priority=True, show=bool(tooltip))


# None of the editor's own keys is a letter.
EDITOR_BINDINGS: list[BindingType] = [
    _writes(_typing("ctrl+s", "save", "save", "editor.save", "Save the preset; a bundled one into your own folder")),
    _typing("f6", "turn(1)", "view", "editor.view", "Focus next: form, text, estimate"),
    _typing("ctrl+f", "find", "find", "editor.find", "Find a field by its name (/ in the form)"),
    _typing("ctrl+z", "undo", "undo", "editor.undo", "Undo"),
    _typing("ctrl+d", "difference", "diff", "editor.difference", "Show differences from the saved text"),
    _typing("ctrl+n", "new", "new", "editor.new", "New preset: from a model's file, a process, or a copy"),
    _typing("ctrl+r", "revert", "revert", "editor.revert", "Discard changes (asks first)"),
    _typing("ctrl+pagedown", "turn(1)", "Focus next: form, text, estimate", "editor.view_next"),
    _typing("ctrl+pageup", "turn(-1)", "Focus previous: form, text, estimate", "editor.view_before"),
    _typing("ctrl+y", "undo('redo')", "Redo", "editor.redo"),
    _typing("f2", "rename", "rename", "editor.rename", "Rename the preset"),
    _typing("ctrl+x", "delete", "Delete the preset's file (asks first)", "editor.delete"),
    _typing("f1", "app.help", "help", "editor.help", "Help: all keys"),
    # Without priority: an input takes Escape first.
    _key("escape", "leave", "leave", "editor.leave", "Close the editor (asks to save changes)"),
]
FORM_BINDINGS: list[BindingType] = [
    Binding("ctrl+up", "table(-1)", "Previous table", id="form.table_before", show=False),
    Binding("ctrl+down", "table(1)", "Next table", id="form.table_after", show=False),
    Binding("left", "step(-1)", "Previous value; close a table", id="form.less", show=False),
    Binding("right", "step(1)", "Next value; open a table", id="form.more", show=False),
    Binding("enter", "select", "Edit a field, list its choices, open a table", id="form.open", show=False),
    Binding("slash", "screen.find", "Find a field by its name", id="form.find", show=False),
    Binding("delete", "clear", "Clear: use the default", id="form.unset", show=False),
]


NOTICE = "This dashboard is view-only: no signals, dry runs, edits or files."
PREDICTING, STEPPING = frozenset(_PREDICTING), frozenset(_STEPPING)
# Of no use as long as no GPU was read.
NEEDS_GPUS = frozenset(map("watch.{}".format, ("match", "dry_run", "filter", "snapshot", "pause", "details")))


def is_refused(action: object) -> bool:
    """Return whether --view-only refuses an action: every key, click and entry of the command palette runs one."""
    return action_name(action) in _WRITING
