"""The help's windows on every screen, and the bindings that the help and the command palette list."""

from collections.abc import Iterable
from functools import partial

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.keys import key_to_character

from vramtui.app.context import AppContext
from vramtui.app.keys import PREDICTING, is_refused
from vramtui.app.themes import key_shown
from vramtui.app.ui.view_screen import ViewScreen


def keys_shown(app: App[None], screen: ViewScreen | None) -> list[tuple[str, Binding]]:
    """Every binding with an id of the current screen, its panels and the app, with its keys as written. The app's keys
    that do something else on that screen, or type there, are left out.
    """
    nodes = [screen, *(node for node in screen.query("*") if node.can_focus), app] if screen is not None else [app]
    bindings_by_key: dict[str, tuple[list[str], Binding]] = {}
    view_only = screen is not None and screen.view.view_only
    types, taken = screen is not None and screen.TYPES, set[str]()
    for node in nodes:
        bindings = node._bindings.copy()  # noqa: SLF001 - there is no public list of them
        bindings.apply_keymap(app._keymap)  # noqa: SLF001 - as above
        if node is screen:
            taken = set(bindings.key_to_bindings)
        for binding in (binding for _, binding in bindings):
            hidden = binding.key in taken or (types and key_to_character(binding.key) is not None)
            works = node is not app or binding.priority or not hidden
            if (
                binding.id
                and works
                and not (view_only and is_refused(binding.action))
                and not _is_silent(binding, screen)
            ):
                keys, _ = bindings_by_key.setdefault(binding.id, ([], binding))
                key = key_shown(app, binding)
                if key not in keys:  # two panels of one kind have the same
                    keys.append(key)
    return [(" ".join(keys), binding) for keys, binding in bindings_by_key.values()]


def _is_silent(binding: Binding, screen: ViewScreen | None) -> bool:
    """Return whether the key is about predictions, and only the monitor is shown."""
    is_monitor = screen is not None and screen.view.is_monitor
    return is_monitor and (binding.id in PREDICTING or (binding.id or "").startswith("estimate."))


def commands(app: App[None], screen: ViewScreen | None) -> Iterable[SystemCommand]:
    """Every action of the current screen and of the app, for the command palette."""
    if screen is None:
        return
    listed: set[str] = set()
    # Those of the screen first: the user knows sooner what works everywhere.
    for active in sorted(screen.active_bindings.values(), key=lambda one: one.node is app):
        binding = active.binding
        # Textual's own have no id; a binding with several keys is there once for each.
        if not binding.id or binding.id in listed or (screen.view.view_only and is_refused(binding.action)):
            continue
        if _is_silent(binding, screen):
            continue
        if not binding.system and active.node in (screen, app) and active.enabled:
            listed.add(binding.id)
            title = (binding.tooltip or binding.description).rstrip(".")
            yield SystemCommand(title, key_shown(app, binding), partial(app.run_action, binding.action, screen))


class HelpController:
    """Opens the windows; each shows the moment in which it was opened."""

    __slots__ = ("_shared",)

    def __init__(self, shared: AppContext) -> None:
        self._shared = shared

    def show_problems(self) -> None:
        from vramtui.app.help.dialog import Problems

        first = self._shared.screens.first
        if first is not None:
            self._shared.app.push_screen(Problems(first.view, self._shared.notices.earlier))

    def show_keys(self) -> None:
        """Show every key; the hint about the help is not needed any more."""
        from vramtui.app.help.dialog import Help

        self._shared.state.dismiss_hint()
        app, screen = self._shared.app, self._shared.screens.current
        node = screen.focused if screen is not None else None
        bindings = node._bindings.copy().key_to_bindings.values() if node is not None else ()  # noqa: SLF001 - as above
        # The section of the focused panel: the prefix of its bindings' ids, if it has any.
        first = next((one.id for same in bindings for one in same if one.id), "")
        app.push_screen(Help(keys_shown(app, screen), f"{first.partition('.')[0]}." if first else ""))
