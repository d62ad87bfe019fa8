"""A dashboard that is only looked at, as in a browser: what it does not do, whoever presses what."""

NOTICE = "This dashboard is view-only: nothing is signalled, traced, edited or written from here."
# By the action: every key, click, button of the key bar and entry of the command palette comes to one.
REFUSED = frozenset(
    (
        "calibrate",
        "copy_command",
        "copy_pid",
        "deliver_screenshot",
        "edit",
        "edit_outside",
        "forget",
        "forget_run",
        "record",
        "report",
        "report_run",
        "save",
        "save_variant",
        "screenshot",
        "signal",
        "snapshot",
        "snapshot_options",
        "suspend_process",
        "trace",
        "trace_process",
    )
)


def is_refused(action: object) -> bool:
    """Whether an action, as a binding names it (`screen.trace`, `app.step('batch', 1)`) or parsed, does any of that."""
    name = action.partition("(")[0] if isinstance(action, str) else str(action[1]) if isinstance(action, tuple) else ""
    return name.rpartition(".")[2].strip() in REFUSED
