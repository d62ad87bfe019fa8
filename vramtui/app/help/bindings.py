"""What the help and the command palette list: every binding that has an id."""

from collections.abc import Callable, Iterable

from textual.app import App, SystemCommand
from textual.binding import Binding
from textual.keys import key_to_character

from vramtui.app.keys import PREDICTING, is_refused
from vramtui.app.terminal.colours import key_shown
from vramtui.app.ui.view_screen import ViewScreen


def keys_shown(app: App[None], screen: ViewScreen | None) -> list[tuple[str, Binding]]:
    """Every binding with an id of the screen that is shown, its panels and the app, with its keys as written. Left out
    of the app's are keys that do something else on that screen, and those that type there.
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
    """Whether a key is one of predictions where only the monitor is shown."""
    is_monitor = screen is not None and screen.view.is_monitor
    return is_monitor and (binding.id in PREDICTING or (binding.id or "").startswith("estimate."))


def focused_section(screen: ViewScreen | None) -> str:
    """What the ids of the focused panel's bindings begin with; empty where no panel has the keys."""
    node = screen.focused if screen is not None else None
    for binding in node._bindings.copy().key_to_bindings.values() if node is not None else ():  # noqa: SLF001 - as above
        for shown in binding:
            if shown.id:
                return shown.id.partition(".")[0] + "."
    return ""


def commands(app: App[None], screen: ViewScreen | None) -> Iterable[SystemCommand]:
    """Every action of the screen that is shown and of the app, as the palette lists them."""
    if screen is None:
        return
    listed: set[str] = set()
    # Those of the screen first: what works everywhere is known sooner.
    for active in sorted(screen.active_bindings.values(), key=lambda one: one.node is app):
        binding = active.binding
        # Textual's own have no id; one with several keys stands there once for each.
        if not binding.id or binding.id in listed or (screen.view.view_only and is_refused(binding.action)):
            continue
        if _is_silent(binding, screen):
            continue
        if not binding.system and active.node in (screen, app) and active.enabled:
            listed.add(binding.id)
            title = (binding.tooltip or binding.description).rstrip(".")
            yield SystemCommand(title, key_shown(app, binding), _runner(app, screen, binding))


def _runner(app: App[None], screen: ViewScreen, binding: Binding) -> Callable[[], object]:
    async def run() -> None:
        await app.run_action(binding.action, screen)

    return run
