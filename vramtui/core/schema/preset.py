"""A Preset: a workload with a name, how to recognise its process, and what was measured of it."""

from typing import Annotated

import msgspec
from msgspec import Meta, structs

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.common_types import ModuleLoading
from vramtui.core.schema.decoder_models import Model, RuleModel
from vramtui.core.schema.parallel import Parallel
from vramtui.core.schema.rule_inputs import RuleInputs
from vramtui.core.schema.workload import InferRun, Run, ServeRun, TrainRun, Workload

DERIVED = "derived:"  # what the key of a preset begins with that was made from a running process
Peak = Annotated[int, Meta(extra={"unit": "bytes"})]


Word = Annotated[str, Meta(min_length=1, max_length=512)]
Words = Annotated[tuple[Word, ...], Meta(min_length=1, max_length=64)]


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to know the job among processes: every rule given must hold. Words are found anywhere in the command line,
    in upper or lower case; one that begins or ends with a digit not within a longer number.

    Attributes:
        all: lists of words; of each list, one word must stand in the process's command line.
        none: words none of which may stand in the process's command line.
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
    """One TOML file. `name` is the title people read; the file's stem is what commands call it by.

    Attributes:
        name: the title people read.
        notes: anything worth knowing, of the data or of how it is started.
    """

    name: str
    notes: str = ""
    model: Model
    run: Run
    parallel: Parallel | None = None
    rule: RuleInputs | None = None
    match: Match | None = None
    measured: Measured | None = None

    def __post_init__(self) -> None:
        """Raises UserError for a model of kind `rule` without a rule."""
        if isinstance(self.model, RuleModel) and self.rule is None:
            raise UserError('model.kind = "rule" goes with a [rule] table, and there is none')

    @property
    def workload(self) -> Workload:
        """What an estimator may look at."""
        return Workload(model=self.model, run=self.run, parallel=self.parallel, rule=self.rule)


class PresetFile(msgspec.Struct, frozen=True, kw_only=True):
    """A preset as found: `key` is the name commands use, `path` the file, `bundled` whether it came with us.

    Where a running job was matched to it, `said` has the keys whose values are the job's own, each with the flag of
    its command line; `assumed` is whether a size, the precision or the rank is the preset's for want of such a flag.
    `derived` is what a preset was made from that nobody wrote: the model that a running process names, and where it
    is; empty for all others.
    """

    key: str
    path: str
    bundled: bool
    preset: Preset
    said: tuple[tuple[str, str], ...] = ()
    assumed: bool = False
    derived: str = ""

    def as_loaded(self, loading: ModuleLoading | None) -> "PresetFile":
        """The same for a process whose environment says when CUDA loads kernels; as it is where it says nothing new."""
        run = self.preset.run
        if loading is None or not isinstance(run, (TrainRun, InferRun)) or run.module_loading == loading:
            return self
        preset = structs.replace(self.preset, run=structs.replace(run, module_loading=loading))
        said = (*self.said, ("run.module_loading", f"CUDA_MODULE_LOADING={loading.upper()}"))
        return structs.replace(self, preset=preset, said=said)

    @property
    def title(self) -> str:
        """Its name, and behind it the key that commands take where that is another."""
        name, key = printable(self.preset.name), printable(self.key)
        return name if name == key else f"{name} ({key})"

    @property
    def unsaid(self) -> tuple[str, ...]:
        """What the run's memory depends on most and the job's command line does not say, in words. Servers but
        llama.cpp take their share of the card whatever that is.
        """
        said, run = dict(self.said), self.preset.run
        if isinstance(run, ServeRun):
            is_open = run.engine == "llama.cpp" and "run.max_model_len" not in said
            return (f"context {run.max_model_len}",) if is_open else ()
        return (*self.unsaid_sizes, *self.unsaid_adapters)

    @property
    def unsaid_sizes(self) -> tuple[str, ...]:
        """As `unsaid`, of batch, sequence and precision alone."""
        said, run = dict(self.said), self.preset.run
        sizes = {"batch_size": "batch", "sequence_length": "sequence", "precision": "precision"}
        return tuple(
            f"{word} {getattr(run, name)}"
            for name, word in sizes.items()
            if getattr(run, name, None) is not None and f"run.{name}" not in said
        )

    @property
    def unsaid_adapters(self) -> tuple[str, ...]:
        """What the command line does not say of the adapters that it asks for, in words; empty without adapters."""
        said, run = dict(self.said), self.preset.run
        if "run.lora" in said and getattr(run, "lora", None) is None:
            return ("no adapters",)
        if not isinstance(run, TrainRun) or run.lora is None:
            return ()
        layers = () if "run.lora.target_modules" in said else (f"adapters on {', '.join(run.lora.target_modules)}",)
        return (*self.unsaid_rank, *layers)

    @property
    def unsaid_rank(self) -> tuple[str, ...]:
        """As `unsaid`, of how large the adapters are. Which layers have them is seldom said."""
        lora = getattr(self.preset.run, "lora", None)
        return () if lora is None or "run.lora.rank" in dict(self.said) else (f"rank {lora.rank}",)
