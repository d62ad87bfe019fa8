"""The estimators by the names people give them: `analytic`, `simulated`, `rules`, `rules:ID` and `all`."""

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device, check_card
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC


class DefaultEstimator:
    """The default method: `simulated` if it follows the job, else `analytic`.

    Of no kind of job that was measured is the share nearer (docs/accuracy.md).
    """

    name = "usual"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Estimate by the simulated allocator where it follows the job, else by the closed forms. Raises UserError if
        the workload is contradictory, or of a kind that is not modelled.
        """
        from vramtui.estimators.analytic.simulated import (  # noqa: PLC0415 - with it comes the whole allocator
            SIMULATED,
            unfollowed,
        )

        return (ANALYTIC if unfollowed(workload) else SIMULATED).estimate(workload, device)

    def at_least(self, workload: Workload, estimate: Estimate) -> int | None:
        """Bytes of the process that its answer does not go below, by `estimate` of `analytic`: all but what is cached.

        None if it answers with that very estimate, and where a job has settings of the allocator, which cut blocks.
        """
        from vramtui.estimators.analytic.simulated import unfollowed  # noqa: PLC0415 - with it comes the whole allocator

        settings = getattr(workload.run, "alloc_conf", None)
        return None if settings or unfollowed(workload) else estimate.process - (estimate.ledger.cached or 0)


DEFAULT = DefaultEstimator()
METHODS = ("analytic", "simulated", "rules", "rules:ID", "all")


def estimates_by(method: str | None, workload: Workload, device: Device) -> list[Estimate]:
    """The answers of `method`: one estimate for `analytic` or `simulated`, one for each rule that fits for
    `rules`, the usual one and rules for `all`.

    None means `DEFAULT`. Raises UserError if the method is unknown, or does not cover the workload, and
    CannotStartError if the card cannot run it.
    """
    check_card(workload, device)
    if isinstance(workload.model, TorchModel):
        file = printable(workload.model.file)
        raise UserError(f"model.kind = 'torch' is code, not a model: vramtui dry-run --gpu GPU {file}")
    named: dict[str | None, Estimator] = {None: DEFAULT, "usual": DEFAULT, "analytic": ANALYTIC}
    if method == "simulated":
        from vramtui.estimators.analytic.simulated import SIMULATED  # noqa: PLC0415 - with it comes the whole allocator

        named[method] = SIMULATED
    if method in named:
        return [named[method].estimate(workload, device)]
    from vramtui.estimators.rules import RULES, estimate_rules  # noqa: PLC0415 - formulas that few answers need

    assert method is not None
    kind, one, rule = method.partition(":")
    if kind == "rules":
        return estimate_rules(workload, device, rule if one else None)
    if method != "all":
        known = (*METHODS, *(f"rules:{rule}" for rule in RULES))
        raise UserError(f"--method {method} is not known{nearest(method, known)}; it is one of: {', '.join(METHODS)}")
    usual = DEFAULT.estimate(workload, device)
    try:
        return [usual, *estimate_rules(workload, device)]
    except UserError:  # no rule covers the workload
        return [usual]
