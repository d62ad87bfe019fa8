"""The config file, `config.toml` beside the folder of presets: as strict as they are."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import Settings
from vramtui.presets.reading import PresetProblem, finite_float, line_of, read_text, shown, syntax_problem
from vramtui.presets.schema import Fault, dotted, find_faults
from vramtui.presets.toml import reader as toml
from vramtui.presets.toml.positions import key_lines
from vramtui.presets.toml.whole_files import write_whole
from vramtui.presets.toml.writer import set_values

EXAMPLE = """\
# vramtui's settings. Every line that begins with # shows what holds when nothing is said.

[dashboard]
# interval = 1.0          # seconds between looks at the GPUs
# theme = "vramtui-dark"  # ctrl+t shows them all, nord and gruvbox among them; without it what suits the terminal
# preset = "gpt2-124m"    # in the estimate panel from the beginning; none by default
# read_only = false       # true: nothing is ever done to a process
# calibration = false     # true: estimates go by what this host's own runs teach (K in the dashboard)

[columns]
# processes = ["pid", "gpu", "user", "now", "peak", "command"]  # by default as many as the width allows; all of them:
#             pid gpu user type now peak predicted delta sm cpu host time job command (f in the dashboard)
# group = "none"          # or job, user, gpu: one row for each, which opens (b in the dashboard)
# bookkeeping = false     # true: what drivers keep and small remainders have rows of their own

[snapshot]
# folder = "reports"      # where snapshots go; by default where the program was started
# formats = ["json", "csv", "md", "svg", "html"]  # and "png", by rsvg-convert, Inkscape or a browser

[recording]
# folder = "recordings"   # where recordings made with r go; by default recordings/ in the data folder

[alerts]
# kinds = ["will_not_fit", "growth", "over", "held_by_exited", "lost", "out_of_memory"]
# after = 2.0             # seconds that something has to last before it is said
# until = 10.0            # seconds that it has to be over before it is said again
# horizon = 3600.0        # growth is said when it reaches the limit within so many seconds
# held = 268435456        # bytes that exited processes may hold
# bell = false
# notification = false    # a desktop notification, where the terminal can
# command = "notify-send vramtui \\"$VRAMTUI_ALERT\\""

[hosts]
# train = ["gpu[01-08]"]  # a group for --host @train; ranges as Slurm writes them, names as ssh knows them

[keys]
# "watch.snapshot" = "s"  # any key by its name in the help (?)
"""


def read_settings(path: Path) -> Settings:
    """The settings in the file at `path`; what holds by default where there is no such file.

    Raises:
        UserError: the file cannot be read, or something in it is wrong; the sentence names file, line and key.
    """
    if not path.exists():
        return Settings()
    text = read_text(path)
    problems = find_setting_problems(text)
    if problems:
        raise UserError(problems[0].at(path))
    return msgspec.convert(toml.loads(text), Settings)


def write_settings(path: Path, values: Mapping[str, Any]) -> None:
    """Set the values at dotted keys in the file at `path`, everything else as it was; None takes a key away.

    Raises:
        UserError: the file cannot be read or written, or it would be wrong; it stays as it was then.
    """
    text = read_text(path) if path.exists() else ""
    problems = find_setting_problems(text)
    if not problems:
        text = set_values(text, values)
        problems = find_setting_problems(text)
    if problems:
        raise UserError(problems[0].at(path))
    write_whole(path.resolve(), text.encode(), shown(path))


def find_setting_problems(text: str) -> tuple[PresetProblem, ...]:
    """Everything that is wrong with `text` as a config file, in the order of its lines."""
    try:
        tables = toml.loads(text, parse_float=finite_float)
    except RecursionError:
        return (PresetProblem(None, "", "nested too deeply"),)
    except ValueError as error:
        return (syntax_problem(text, str(error)),)
    faults = find_faults(tables, Settings)
    if not faults:
        try:
            msgspec.convert(tables, Settings)
        except msgspec.ValidationError as error:
            faults = [Fault((), str(error))]
    lines = key_lines(text) if faults else {}
    found = [PresetProblem(line_of(fault.key, lines), dotted(fault.key), fault.sentence) for fault in faults]
    return tuple(sorted(found, key=lambda problem: problem.line or 0))
