"""A Preset: a workload with a name, how to recognise its process, and what was measured of it."""

import re
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, structs

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.models import Model, Runtime
from vramtui.core.schema.workload import InferRun, Parallel, Run, TrainRun, Workload

DERIVED = "derived:"  # what the key of a preset begins with that was made from a running process
Peak = Annotated[int, Meta(extra={"unit": "bytes"})]


Word = Annotated[str, Meta(min_length=1, max_length=512)]
Words = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=64)]


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to know the job among processes: every rule given must hold. Words are found anywhere in the command line,
    in upper or lower case; one that begins or ends with a digit not within a longer number.

    Attributes:
        all: lists of words; of each list, one word must stand in the process's command line.
        none: words that must not be in the process's command line.
        user: its user's name.
        gpu: a word of its card's name.
    """

    all: Annotated[tuple[Words, ...], Meta(max_length=16)] = ()
    none: Annotated[tuple[Word, ...], Meta(max_length=64)] = ()
    user: str | None = None
    gpu: str | None = None

    def __post_init__(self) -> None:
        """Raises UserError for a name that is written as a pattern."""
        for key, name in (("user", self.user), ("gpu", self.gpu)):
            if name is not None and set(name) & set("^$|*"):
                what = "the user's name" if key == "user" else "a word of the card's name"
                raise UserError(f"match.{key} is {what} as it stands, no pattern; {printable(name)} holds one")


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """True peaks in bytes, and where they were measured (card, driver, torch, date).

    Attributes:
        allocated: the peak of torch.cuda.memory_allocated.
        reserved: the peak of torch.cuda.memory_reserved.
        process: the peak of the whole process, as nvidia-smi shows it.
        where: card, driver, torch and date.
    """

    allocated: Peak | None = None
    reserved: Peak | None = None
    process: Peak | None = None
    where: str


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file. `name` is the title people read, `notes` anything worth knowing about data or start; commands use
    the file's stem.
    """

    name: str
    notes: str = ""
    model: Model
    run: Run
    parallel: Parallel | None = None
    match: Match | None = None
    measured: Measured | None = None

    @property
    def workload(self) -> Workload:
        return Workload(model=self.model, run=self.run, parallel=self.parallel)


Origin = Literal["command line", "job's file", "environment", "launcher's default"]


class Known(NamedTuple):
    """A setting of a running job that is known: its key in a preset, where from, and the words that say it."""

    key: str
    origin: Origin
    words: str


class PresetFile(msgspec.Struct, frozen=True, kw_only=True):
    """A preset as found: `key` is the name commands use, `path` the file, `bundled` whether it came with us.

    Where a running job was matched to it, each setting that its memory depends on is known or assumed: `known` has
    those that the job or its launcher states, `assumed` the keys that only the preset states
    (`run.lora`: whether there are adapters; `run.kind`: whether it trains at all; `model`: which model of that name).
    What a person wrote or chose is neither: it is taken at its word.
    `derived` is the origin of a preset that was not written by hand: the model that a running process names, and
    its place; empty for all others. `settings` are those of a command line that were put over it, as they were written.
    """

    key: str
    path: str
    bundled: bool
    preset: Preset
    known: tuple[Known, ...] = ()
    assumed: tuple[str, ...] = ()
    derived: str = ""
    settings: tuple[str, ...] = ()

    def changed(self, **changes: Any) -> "PresetFile":  # noqa: ANN401 - any field of a preset
        """Return it with other fields of its preset."""
        return structs.replace(self, preset=structs.replace(self.preset, **changes))

    def as_run_under(self, runtime: Runtime) -> "PresetFile":
        """Return the preset with what a process's runtime adds; itself if that is nothing new."""
        run, shared = self.preset.run, self._over(*runtime.ranks) if runtime.ranks is not None else self
        if not isinstance(run, (TrainRun, InferRun)):
            return self
        if shared is not self:
            return shared.as_run_under(runtime._replace(ranks=None))
        loading = (runtime.module_loading or "").upper()
        words = {
            "module_loading": f"CUDA_MODULE_LOADING={loading}",
            "torch": f"PyTorch {runtime.torch}, which it has loaded",
            "alloc_conf": f"PYTORCH_ALLOC_CONF={runtime.alloc_conf}",
        }
        new: dict[str, Any] = {
            key: value
            for key, value in runtime._asdict().items()
            if value is not None and key in words and getattr(run, key) != value
        }
        if not new:
            return self
        preset = structs.replace(self.preset, run=structs.replace(run, **new))
        known = (*self.known, *(Known(f"run.{key}", "environment", words[key]) for key in new))
        return structs.replace(self, preset=preset, known=known)

    def _over(self, ranks: int, launcher: str) -> "PresetFile":
        """Return the preset of a training job with its data-parallel ranks: those that its other sizes leave."""
        preset = self.preset
        parallel = preset.parallel or Parallel()
        data, rest = divmod(ranks * parallel.data, parallel.ranks)
        can = isinstance(preset.run, TrainRun) and preset.model.__struct_config__.tag != "torch"
        if not can or rest or data % parallel.expert or data == parallel.data:
            return self
        name = re.sub(r"over \d+ cards", f"over {ranks}{f' ({launcher})' if launcher else ''}", preset.name)
        preset = structs.replace(preset, name=name, parallel=structs.replace(parallel, data=data))
        seen = Known("parallel.data", "environment", f"{ranks} ranks {f'of {launcher}' if launcher else 'seen'}")
        known = tuple(one for one in self.known if one.key != seen.key)
        return structs.replace(self, preset=preset, known=(*known, seen))

    @property
    def is_assumed(self) -> bool:
        """Return whether its estimate is marked: it was not written for the job, or assumes some of its settings."""
        return bool(self.assumed or self.derived)

    @property
    def title(self) -> str:
        """The preset's name, followed by the key that commands take where the two differ."""
        name, key = printable(self.preset.name), printable(self.key)
        return name if name == key else f"{name} ({key})"


def explicit_values(part: msgspec.Struct) -> dict[str, Any]:
    """The keys of a Struct that differ from their defaults, and its tag."""
    config = part.__struct_config__
    values: dict[str, Any] = {config.tag_field: config.tag} if config.tag_field and config.tag is not None else {}
    tables = {}
    for field in structs.fields(part):
        value = getattr(part, field.name)
        if value is None or (not field.required and value == field.default):
            continue
        if isinstance(value, msgspec.Struct):
            tables[field.encode_name] = explicit_values(value)
        elif isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            values[field.encode_name] = [explicit_values(part) for part in value]
        else:
            plain = msgspec.to_builtins(value)
            (tables if isinstance(plain, dict) else values)[field.encode_name] = plain
    return values | tables
