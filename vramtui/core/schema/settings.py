"""A person's settings: the config file's tables."""

from typing import Annotated, Literal, get_args

import msgspec
from msgspec import Meta

# Ours, then Textual's own.
# fmt: off
ThemeName = Literal[
    "vramtui-dark", "vramtui-light", "vramtui-ansi", "textual-dark", "textual-light", "nord", "gruvbox",
    "catppuccin-mocha", "dracula", "tokyo-night", "monokai", "flexoki", "catppuccin-latte", "catppuccin-frappe",
    "catppuccin-macchiato", "solarized-light", "solarized-dark", "rose-pine", "rose-pine-moon", "rose-pine-dawn",
    "atom-one-dark", "atom-one-light", "ansi-dark", "ansi-light",
]
# fmt: on
Format = Literal["json", "csv", "md", "html"]
ProcessColumn = Literal[
    "pid", "gpu", "user", "type", "now", "peak", "predicted", "delta", "sm", "cpu", "host", "time", "job", "command"
]
Grouping = Literal["none", "job", "user", "gpu", "tree"]
CONFIG = "config.toml"
FORMATS: tuple[Format, ...] = get_args(Format)
Kind = Literal["will_not_fit", "growth", "over", "held_by_exited", "lost", "xid", "out_of_memory"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class AlertRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[alerts]` table of the config file.

    Attributes:
        kinds: which alerts there are.
        after: seconds that something has to last before it is said.
        until: seconds that it has to be over before it can be said again.
        horizon: seconds ahead within which growth has to reach the limit.
        held: bytes that exited processes may hold.
        bell: ring the terminal's bell.
        notification: ask the terminal for a desktop notification (OSC 9).
        command: a command to run, with the sentence in VRAMTUI_ALERT; nothing is run when absent.
    """

    kinds: tuple[Kind, ...] = KINDS
    after: Seconds = 2.0
    until: Seconds = 10.0
    horizon: Seconds = 3600.0
    held: Annotated[int, Meta(ge=0)] = 256 << 20
    bell: bool = False
    notification: bool = False
    command: str | None = None


class DashboardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[dashboard]` of the settings.

    Attributes:
        interval: seconds between looks at the GPUs.
        theme: the colours to begin with; what suits the terminal when absent.
        preset: the preset in the estimate panel from the beginning.
        no_signals: no signal is ever sent to a process.
        monitor: only what is seen, from the beginning: no preset, prediction or estimate.
    """

    interval: Annotated[float, Meta(ge=0.1, le=3600)] = 1.0
    theme: ThemeName | None = None
    preset: str | None = None
    no_signals: bool = False
    monitor: bool = False


class ColumnSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[columns]` of the settings.

    Attributes:
        processes: the columns of the process table, from left to right; as many as its width allows when absent.
        group: what the processes have in common that stand under one row, from the beginning.
        bookkeeping: what drivers keep and small unattributed remainders have rows of their own.
    """

    processes: Annotated[tuple[ProcessColumn, ...], Meta(min_length=1)] | None = None
    group: Grouping = "none"
    bookkeeping: bool = False


class SnapshotSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[snapshot]` of the settings.

    Attributes:
        folder: where snapshots go; the folder that the program was started in when absent.
        formats: what is written.
    """

    folder: str | None = None
    formats: Annotated[tuple[Format, ...], Meta(min_length=1)] = ("md", "html")


class RecordingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[recording]` of the settings.

    Attributes:
        folder: where the dashboard's recordings go; `recordings` in the data folder when absent.
    """

    folder: str | None = None


class DryRunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[dry_run]`: `engine` is the engine of `vramtui dry-run`; `auto` goes by the job's PyTorch."""

    engine: Literal["auto", "cuda", "fake"] = "auto"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        keys: for a binding's id (the help names them), the key or keys that do it instead.
        hosts: groups of hosts by their names, for `--host @name`: names and ranges as `--host` takes them.
    """

    dashboard: DashboardSettings = DashboardSettings()
    columns: ColumnSettings = ColumnSettings()
    snapshot: SnapshotSettings = SnapshotSettings()
    recording: RecordingSettings = RecordingSettings()
    alerts: AlertRules = AlertRules()
    dry_run: DryRunSettings = DryRunSettings()
    keys: dict[str, str] = {}
    hosts: dict[str, tuple[str, ...]] = {}
