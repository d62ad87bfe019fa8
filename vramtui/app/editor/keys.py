"""The keys of the preset editor. They work while something is typed, so none of them is a letter."""

from textual.binding import Binding, BindingType


def _key(key: str, action: str, name: str, identity: str, tooltip: str) -> Binding:
    return Binding(key, action, name, id=identity, tooltip=tooltip, priority=True)


def _quiet(key: str, action: str, identity: str, tooltip: str) -> Binding:
    return Binding(key, action, tooltip, id=identity, tooltip=tooltip, priority=True, show=False)


EDITOR_BINDINGS: list[BindingType] = [
    _key("ctrl+s", "save", "save", "editor.save", "Save the preset; a bundled one into your own folder"),
    _key("f6", "turn(1)", "view", "editor.view", "Form, text, estimate: the next of them"),
    _key("ctrl+z", "undo", "undo", "editor.undo", "Undo the last step"),
    _key("ctrl+d", "difference", "diff", "editor.difference", "What differs from the saved text"),
    _key("ctrl+n", "new", "new", "editor.new", "A new preset: from a model's file, a process, or as a copy"),
    _key("ctrl+r", "revert", "revert", "editor.revert", "Back to the saved text, after a question"),
    _key("f5", "measured", "measured", "editor.measured", "Write what a run was seen to take into [measured]"),
    _quiet("ctrl+pagedown", "turn(1)", "editor.view_next", "Form, text, estimate: the next of them"),
    _quiet("ctrl+pageup", "turn(-1)", "editor.view_before", "Form, text, estimate: the one before"),
    _quiet("ctrl+y", "redo", "editor.redo", "Do again what was undone"),
    _quiet("ctrl+x", "delete", "editor.delete", "Delete the preset's file, after a question"),
    _key("f1", "app.help", "help", "editor.help", "Every key and what it does"),
    # No priority: a field that is typed into takes it first.
    Binding("escape", "leave", "leave", id="editor.leave", tooltip="Leave the editor; asks where something is unsaved"),
]
