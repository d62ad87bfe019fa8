"""Every key of the program by where it works, and how to read each panel, for the help and the settings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from textual.binding import Binding, BindingType
from textual.keys import format_key

from vramtui.app.fleet.tables import FleetRows, JobRows
from vramtui.app.history.panels import RunRows
from vramtui.app.history.run_window import RunWindow
from vramtui.app.keys import (
    APP_BINDINGS,
    EDITOR_BINDINGS,
    FLEET_BINDINGS,
    FORM_BINDINGS,
    HISTORY_BINDINGS,
    PLAN_BINDINGS,
    REPLAY_BINDINGS,
    TIMELINE_BINDINGS,
    WATCH_BINDINGS,
)
from vramtui.app.plan.heatmap import Heatmap
from vramtui.app.plan.panels import PlanWords
from vramtui.app.timeline.panels import PhaseBars
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.process_table import Rows
from vramtui.core.base.errors import UserError, nearest


class Section(NamedTuple):
    """A panel or a screen: the prefix of its bindings' ids, its title, its bindings, and how to read it."""

    prefix: str
    title: str
    bindings: Sequence[BindingType]
    about: str = ""


TABLE = (
    "A row is a process on a GPU, or 256 MiB and more that no process accounts for. What the driver keeps is in the"
    " GPU's bar, and in the last line next to what all processes, and each user's, hold.\n"
    "NOW is what the driver reports for a process, PEAK the most seen of it, PREDICT its preset's peak, and Δ"
    " is PEAK against PREDICT. A PEAK with = before it is exact, by the driver's accounting; any other was sampled,"
    " and a spike between two samples may have been higher.\n"
    "b groups the rows: a job is what shares user and command, ranks apart, and was started within a minute;"
    " a process tree is what one process started, ▸ with its pid.\n"
    "Rows are in the order of their GPUs, or, of more than 32 processes, the largest first; < and > sort by another"
    " column. Selecting a row freezes the sorting until Esc.\n"
    "A filter is words from any column, or from one: user:anna gpu:0 pid:123 preset:llama cmd:train."
)
ESTIMATE = (
    "The memory that the preset's process should hold at its peak, part by part, next to what is"
    " observed. allocated and reserved are PyTorch's own figures; process is what nvidia-smi shows.\n"
    "The fields above step up and down; * marks what differs from the file, and u undoes it. x explains each part with"
    " its arithmetic."
)
PHASES = (
    "A bar for the end of each phase: the solid part is what is held then, by category; the light part extends to the"
    " most that was held within the phase."
)
MAP = (
    "Each cell is the predicted process of the preset with two of its values changed. The heavy line is the edge of"
    " what fits the card, the dot is the preset's own cell, and – is not possible: the advice below says why.\n"
    "a and A choose the axes, g the card, b the comparison; Enter applies the cell, w saves it."
)
CHANGES = (
    "Every single change to the cell's variant that frees memory, most first, with what is held then, whether that"
    " fits, and what the change costs. Enter applies the change to the cell, and another can follow; w saves both as a"
    " preset; u resets to the file.\n"
    "A server takes the share of the card that it is given: there the column shows the largest context that fits."
)
HISTORY = (
    "Every job that ran a preset while a dashboard watched it, and every one that vramtui run started. The errors are"
    " those of finished runs.\n"
    "ENDED: exited is exit code 0, failed another one, killed a signal; ended if the exit code is unknown, as"
    " of most jobs that vramtui run did not start."
)
RUNS = "SEEN is the largest sample of the process, and Δ is that against the prediction."
FLEET_ABOUT = (
    "With --host and several names, 5 shows a line for each GPU of each host, and below what each user holds on all of"
    " them. A host that has sent nothing for three intervals is down, however its connection looks.\n"
    "A filter is words from any column, or from one: host:gpu01 user:anna gpu:0 state:down.\n"
    "b shows jobs of several ranks (torchrun, accelerate, srun, mpirun), each as one on all hosts: WORST RANK is the"
    " one furthest above its prediction, or else the largest; UNEVEN is how far the largest rank is above their mean."
    " Enter shows a job's ranks, and on a rank watches its host."
)
FORM = (
    "Typing into a field changes the text at once, and Esc reverts it. ‹ › step a value, a letter finds a choice,"
    " and grey values are defaults. ✗ marks an error, * an unsaved change.\n"
    "Form and text show the same draft and share one undo history; comments stay. The estimate is updated with each"
    " key; while there is an error, the last valid one stays, grey."
)
SECTIONS = (
    Section("table.", "Process table", Rows.BINDINGS, TABLE),
    Section("estimate.", "Estimate panel", EstimatePanel.BINDINGS, ESTIMATE),
    Section("phases.", "Phases", PhaseBars.BINDINGS, PHASES),
    Section("watch.", "Watch", WATCH_BINDINGS),
    Section("map.", "Map of what fits", Heatmap.BINDINGS, MAP),
    Section("changes.", "Changes that free memory", PlanWords.BINDINGS, CHANGES),
    Section("plan.", "Plan", PLAN_BINDINGS),
    Section("timeline.", "Timeline", TIMELINE_BINDINGS),
    Section("history.", "History", HISTORY_BINDINGS, HISTORY),
    Section("runs.", "List of runs", RunRows.BINDINGS, RUNS),
    Section("run.", "One run", RunWindow.BINDINGS),
    Section("fleet.", "Fleet, with several hosts", FLEET_BINDINGS, FLEET_ABOUT),
    Section("fleet_rows.", "List of hosts", FleetRows.BINDINGS),
    Section("fleet_jobs.", "List of jobs", JobRows.BINDINGS),
    Section("replay.", "While a recording is played", REPLAY_BINDINGS),
    Section("form.", "Preset editor: form", FORM_BINDINGS, FORM),
    Section("editor.", "Preset editor", EDITOR_BINDINGS),
    Section("app.", "Everywhere", APP_BINDINGS),
)


def bindings_of(section: Section) -> Iterator[Binding]:
    """The bindings of a section that have an id."""
    return (binding for binding in section.bindings if isinstance(binding, Binding) and binding.id)


def every_key() -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Each section's title, and for each of its bindings the usual key, its name in the settings, and what it does."""
    for section in SECTIONS:
        lines: dict[str, tuple[str, str, str]] = {}
        for binding in bindings_of(section):
            keys = " ".join(binding.key_display or format_key(key) for key in binding.key.split(","))
            lines[binding.id or ""] = (keys, binding.id or "", binding.tooltip or binding.description)
        if lines:
            yield section.title, list(lines.values())


def check_keys(chosen: Mapping[str, str]) -> None:
    """Check that every name in the settings' `[keys]` is the id of a binding.

    Args:
        chosen: keys by the binding's id.

    Raises:
        UserError: a binding does not exist; the message names the nearest.
    """
    known = [binding.id or "" for section in SECTIONS for binding in bindings_of(section)]
    for name, keys in chosen.items():
        if name not in known:
            raise UserError(f"keys.{name} is not the name of a key{nearest(name, known)}; `vramtui help keys` has them")
        if not all(key.strip() for key in keys.split(",")):
            raise UserError(f"keys.{name} is {keys!r}: keys are written as `s`, `ctrl+s` or `s,ctrl+s`")
