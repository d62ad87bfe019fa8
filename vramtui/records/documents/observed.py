"""The documents of what is seen on a host now (`ps`, `pick`, `doctor`), of what a person has set up, and of errors."""

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from vramtui.core.estimate.fits import FitVerdict, Verdict
from vramtui.core.observation.readings import Gpu, Problem, Process
from vramtui.core.schema.settings import Settings
from vramtui.records.documents import like


class PrintedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's memory in bytes; `unattributed` is what no process of the list holds."""

    total: int | None
    used: int | None
    reserved: int | None
    free: int | None
    unattributed: int | None
    unified: bool


class PrintedHostMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The host's own memory in bytes."""

    total: int | None
    available: int | None


PrintedProcess = like(
    Process,
    "PrintedProcess",
    "One process on one GPU, with its peak since the program began to look and what its preset predicts.",
    peak_at=float | None,
    peak_how=str | None,
    peak_interval=float | None,
    preset=str | None,
    predicted_memory=int | None,
    verdict=Verdict | None,
    settings=str | None,
    outlook=tuple[str, ...],
)
PrintedGpu = like(
    Gpu,
    "PrintedGpu",
    "One GPU.",
    memory=PrintedMemory,
    processes=tuple[PrintedProcess, ...],  # type: ignore[valid-type] # made by msgspec
)


class UserSum(msgspec.Struct, frozen=True, kw_only=True):
    """The processes of a user, and their bytes now."""

    user: str
    processes: int
    used_memory: int


class PsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui ps --json`: everything seen on one host at one moment (`taken_at`, seconds since 1970).

    `summary` has a sentence to forward for each process with a prediction; a process's `settings` are those of its
    prediction, and its `outlook` the range that it may need.
    """

    schema: int
    host: str
    taken_at: float
    source: str
    driver_version: str | None
    cuda_version: str | None
    cpu_percent: float | None
    host_memory: PrintedHostMemory
    summary: tuple[str, ...]
    users: tuple[UserSum, ...]
    gpus: tuple[PrintedGpu, ...]  # type: ignore[valid-type] # made by msgspec
    problems: tuple[Problem, ...]
    versions: dict[str, str]


HostAnswer = msgspec.defstruct(
    "HostAnswer",
    [
        ("target", str),
        *((name, str | UnsetType, UNSET) for name in ("error", "hint")),
        *((field.name, field.type | UnsetType, UNSET) for field in msgspec.structs.fields(PsDocument)),
    ],
    namespace={
        "__doc__": "One of several hosts, `target` as asked for: what `ps` prints of it, or why it does not answer."
    },
    frozen=True,
    kw_only=True,
)


class PsHostsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui ps --host … --json` of several hosts."""

    schema: int
    hosts: tuple[HostAnswer, ...]  # type: ignore[valid-type] # made by msgspec


class PickedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU with room; `needs` and `spare` in bytes."""

    index: int
    uuid: str
    verdict: FitVerdict
    needs: int
    spare: int


class PickDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui pick --json`: those with the most room first."""

    schema: int
    gpus: tuple[PickedGpu, ...]


class PrintedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check, and the next step (may be empty)."""

    check: str
    verdict: Literal["ok", "warning", "failed", "unknown"]
    message: str
    hint: str


class DoctorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui doctor --json`; `exit` is its exit code."""

    schema: int
    exit: int
    checks: tuple[PrintedFinding, ...]


class ListedPreset(msgspec.Struct, frozen=True, kw_only=True):
    """One preset and its file."""

    name: str
    title: str
    path: str
    bundled: bool
    model_kind: str
    run_kind: str


class PresetsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui presets list --json`."""

    schema: int
    presets: tuple[ListedPreset, ...]


class SettingsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui doctor --settings --json`: every setting, and the settings file, which need not exist.

    Attributes:
        sources: by setting, `file` or the environment variable that sets it; settings without one have their default.
    """

    schema: int
    path: str
    exists: bool
    sources: dict[str, str]
    settings: Settings


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The error line of every command with `--json`, on standard error.

    Attributes:
        error: the sentence.
        exit: the exit code.
    """

    schema: int
    error: str
    exit: int
