"""A Preset: a workload with a name, how to recognise its process, and what was measured of it."""

import msgspec

from vramtui.core.errors import UserError
from vramtui.core.models import Model, RuleModel
from vramtui.core.parallel import Parallel
from vramtui.core.rule_inputs import RuleInputs
from vramtui.core.workload import Run, Workload


class Match(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How to know the job among processes: every rule given must hold. `command` and `user` are regular
    expressions searched for in the process's command line and user name; `gpu` in the card's name.
    """

    command: str | None = None
    user: str | None = None
    gpu: str | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """True peaks in bytes, and where they were measured (card, driver, torch, date)."""

    allocated: int | None = None
    reserved: int | None = None
    process: int | None = None
    where: str


class Preset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One TOML file. `name` is the title people read; the file's stem is what commands call it by."""

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
    """A preset as found: `key` is the name commands use, `path` the file, `bundled` whether it came with us."""

    key: str
    path: str
    bundled: bool
    preset: Preset
