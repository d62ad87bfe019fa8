"""What a filter of the process table means."""

from collections.abc import Callable, Sequence

from vramtui.app.state.view import ProcessRow
from vramtui.core.base.errors import nearest

Condition = tuple[str, str]


def _user(row: ProcessRow, value: str) -> bool:
    return row.process is not None and (row.process.user or "").lower() == value


def _user_begins(row: ProcessRow, value: str) -> bool:
    return row.process is not None and (row.process.user or "").lower().startswith(value)


def _gpu(row: ProcessRow, value: str) -> bool:
    return str(row.gpu.index) == value or row.gpu.uuid.lower() == value


def _preset(row: ProcessRow, value: str) -> bool:
    return value in (row.preset or "").lower()


def _pid(row: ProcessRow, value: str) -> bool:
    return row.process is not None and str(row.process.pid) == value


def _command(row: ProcessRow, value: str) -> bool:
    return row.process is not None and value in (row.process.command_or_name or "").lower()


FORMS: dict[str, Callable[[ProcessRow, str], bool]] = {
    "user": _user,
    "gpu": _gpu,
    "pid": _pid,
    "preset": _preset,
    "cmd": _command,
}
_BEGUN = "user begins"  # the form of a user's name that is still being typed


def conditions(wanted: str) -> list[Condition]:
    """The words of a filter, each as the form that it has (`user:anna` has the form `user`; others have none) and what
    it asks for. A form that asks for nothing yet is left out.
    """
    found = []
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if not colon or form not in FORMS:
            found.append(("", word))
        elif value:
            found.append((form, value))
    return found


def holds(row: ProcessRow, wanted: list[Condition]) -> bool:
    """Whether a row fulfils every condition. A word without a form may stand in pid, user, command, preset or GPU."""
    text = ""
    for form, value in wanted:
        if form:
            test = _user_begins if form == _BEGUN else FORMS[form]
            if not test(row, value):
                return False
            continue
        text = text or _searched(row)
        if value not in text:
            return False
    return True


def pick_rows(rows: Sequence[ProcessRow], wanted: list[Condition]) -> list[ProcessRow]:
    """The rows that fulfil every condition; where none does, those of users whose names begin with what `user:` asks
    for, so that a name is found while it is typed.
    """
    found = [row for row in rows if holds(row, wanted)]
    if found or not any(form == "user" for form, _ in wanted):
        return found
    begun = [(_BEGUN if form == "user" else form, value) for form, value in wanted]
    return [row for row in rows if holds(row, begun)]


def doubt(wanted: str) -> str:
    """Why a filter that finds nothing may have been meant otherwise; empty where it is plain."""
    for form, value in conditions(wanted):
        name, colon, asked = value.partition(":")
        if form == "pid" and not value.isdecimal():
            return f"{form}:{value} is invalid: a pid is a number."
        if form == "gpu" and not value.isdecimal() and not value.startswith(("gpu-", "mig-")):
            return f"{form}:{value} is invalid: a GPU is a number or a uuid."
        if not form and colon and name.isalpha() and asked:
            return f"There is no {name}:{nearest(name, FORMS)}; there are {', '.join(f'{known}:' for known in FORMS)}."
    return ""


def _searched(row: ProcessRow) -> str:
    parts = [row.gpu.name, row.kind, row.preset or ""]
    if row.process is not None:
        parts += [str(row.process.pid), row.process.user or "", row.process.command_or_name or ""]
    return " ".join(parts).lower()
