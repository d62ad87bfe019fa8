"""How many tokens a sequence of a job has."""

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun


def sequence_of(model: TransformerModel, run: TrainRun | InferRun) -> int:
    """Tokens in one sequence.

    Raises:
        UserError: there is no sequence length, or it is longer than the learned positions.
    """
    sequence = run.sequence_length or model.max_position_embeddings
    if sequence is None:
        raise UserError(
            "run.sequence_length is missing, and the model gives no max_position_embeddings to take instead"
        )
    whole = sequence + (run.new_tokens if isinstance(run, InferRun) else 0)
    if model.position == "learned" and whole > (model.max_position_embeddings or 0):
        named = "run.sequence_length" if whole == sequence else "run.sequence_length + run.new_tokens"
        raise UserError(
            f"{named} = {whole} is longer than model.max_position_embeddings = "
            f"{model.max_position_embeddings}, and learned positions cannot be stretched"
        )
    return sequence
