"""The keys of the preset editor. They work while something is typed, so none of the editor's own keys is a letter."""

from textual.binding import Binding, BindingType


def _key(key: str, action: str, name: str, identity: str, tooltip: str) -> Binding:
    return Binding(key, action, name, id=identity, tooltip=tooltip, priority=True)


def _quiet(key: str, action: str, identity: str, tooltip: str) -> Binding:
    return Binding(key, action, tooltip, id=identity, tooltip=tooltip, priority=True, show=False)


EDITOR_BINDINGS: list[BindingType] = [
    _key("ctrl+s", "save", "save", "editor.save", "Save the preset; a bundled one into your own folder"),
    _key("f6", "turn(1)", "view", "editor.view", "Focus next: form, text, estimate"),
    _key("ctrl+f", "find", "find", "editor.find", "Find a field by its name (/ in the form)"),
    _key("ctrl+z", "undo", "undo", "editor.undo", "Undo"),
    _key("ctrl+d", "difference", "diff", "editor.difference", "Show differences from the saved text"),
    _key("ctrl+n", "new", "new", "editor.new", "New preset: from a model's file, a process, or a copy"),
    _key("ctrl+r", "revert", "revert", "editor.revert", "Discard changes (asks first)"),
    _key("f5", "measured", "measured", "editor.measured", "Write a run's measured memory into [measured]"),
    _quiet("ctrl+pagedown", "turn(1)", "editor.view_next", "Focus next: form, text, estimate"),
    _quiet("ctrl+pageup", "turn(-1)", "editor.view_before", "Focus previous: form, text, estimate"),
    _quiet("ctrl+y", "redo", "editor.redo", "Redo"),
    _key("f2", "rename", "rename", "editor.rename", "Rename the preset"),
    _quiet("ctrl+x", "delete", "editor.delete", "Delete the preset's file (asks first)"),
    _key("f1", "app.help", "help", "editor.help", "Help: all keys"),
    # Without priority: an input takes Escape first.
    Binding("escape", "leave", "leave", id="editor.leave", tooltip="Close the editor (asks to save changes)"),
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
