"""Closed forms for each part of a job's memory: microseconds, no torch."""

from vramtui.core.devices import Device
from vramtui.core.errors import UserError
from vramtui.core.estimate import Estimate
from vramtui.core.models import TransformerModel
from vramtui.core.workload import TrainRun, Workload
from vramtui.estimators.analytic.decoding import decoder_training
from vramtui.estimators.analytic.inference import estimate_inference
from vramtui.estimators.analytic.tensors import parameter_count
from vramtui.estimators.analytic.training import estimate_training

__all__ = ["ANALYTIC", "Analytic", "parameter_count"]


class Analytic:
    """The estimator the screen, the planner and the command line use by default."""

    name = "analytic"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict from the shapes alone.

        Raises:
            UserError: the workload is contradictory, or of a kind that has no closed form here.
        """
        model, run = workload.model, workload.run
        if not isinstance(model, TransformerModel):
            kind = type(model).__struct_config__.tag
            raise UserError(f"the analytic estimator does not know models of kind {kind!r}; try --method rules")
        counted = parameter_count(model)
        if model.parameters is not None and model.parameters != counted:
            raise UserError(
                f"model.parameters = {model.parameters:,} but the shapes give {counted:,}; "
                "one of the sizes is not the card's"
            )
        if isinstance(run, TrainRun):
            return estimate_training(decoder_training(model, run, device), run, device)
        return estimate_inference(model, run, device)


ANALYTIC = Analytic()
