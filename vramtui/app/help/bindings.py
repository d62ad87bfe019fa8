"""What the help and the command palette list: every binding that has an id."""

from collections.abc import Callable, Iterable

from textual.app import SystemCommand
from textual.binding import Binding

from vramtui.app.monitor.dashboard_base import DashboardBase


def keys_shown(app: DashboardBase) -> list[tuple[str, Binding]]:
    """Every binding with an id of the screen that is shown, its panels and the app, with its keys as written."""
    screen = app.place
    nodes = [screen, *(node for node in screen.query("*") if node.can_focus), app] if screen is not None else [app]
    found: dict[str, tuple[list[str], Binding]] = {}
    for node in nodes:
        bindings = node._bindings.copy()  # noqa: SLF001 - there is no public list of them
        bindings.apply_keymap(app._keymap)  # noqa: SLF001 - as above
        for binding in (binding for _, binding in bindings):
            if binding.id:
                keys, _ = found.setdefault(binding.id, ([], binding))
                key = app.get_key_display(binding)
                if key not in keys:  # two panels of one kind have the same
                    keys.append(key)
    return [(" ".join(keys), binding) for keys, binding in found.values()]


def focused_section(app: DashboardBase) -> str:
    """What the ids of the focused panel's bindings begin with; empty where no panel has the keys."""
    node = app.place.focused if app.place is not None else None
    for binding in node._bindings.copy().key_to_bindings.values() if node is not None else ():  # noqa: SLF001 - as above
        for one in binding:
            if one.id:
                return one.id.partition(".")[0] + "."
    return ""


def commands(app: DashboardBase) -> Iterable[SystemCommand]:
    """Every action of the screen that is shown and of the app, as the palette lists them."""
    screen = app.place
    if screen is None:
        return
    for active in screen.active_bindings.values():
        binding = active.binding
        if not binding.system and active.node in (screen, app) and active.enabled:
            title = (binding.tooltip or binding.description).rstrip(".")
            yield SystemCommand(title, f"{binding.description} ({app.get_key_display(binding)})", _runner(app, binding))


def _runner(app: DashboardBase, binding: Binding) -> Callable[[], object]:
    async def run() -> None:
        screen = app.place
        await app.run_action(binding.action, screen)

    return run
