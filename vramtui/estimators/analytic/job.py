"""A training or inference job with its sizes worked out once, for the formulas to share."""

import msgspec

from vramtui.core.errors import UserError
from vramtui.core.models import TransformerModel
from vramtui.core.workload import InferRun, Lora, TrainRun
from vramtui.estimators.analytic.precision import Recipe, recipe


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes of one forward pass.

    Attributes:
        tokens: batch x sequence.
        queries: width of all query heads; `keys` of all key (or value) heads.
        scores: elements of the attention matrix, batch x heads x sequence x sequence.
    """

    model: TransformerModel
    recipe: Recipe
    lora: Lora | None
    eager: bool
    batch: int
    sequence: int
    tokens: int
    queries: int
    keys: int
    scores: int

    @property
    def plain(self) -> bool:
        """Whether the modelling code uses torch's fused operators."""
        return self.model.implementation == "plain"

    def adapted(self, *modules: str) -> list[str]:
        """Those of `modules` that have an adapter beside them."""
        return [module for module in modules if self.lora and module in self.lora.target_modules]


def job_of(model: TransformerModel, run: TrainRun | InferRun) -> Job:
    """Work the sizes out.

    Raises:
        UserError: there is no sequence length, or it is longer than the learned positions.
    """
    sequence = run.sequence_length or model.max_position_embeddings
    if sequence is None:
        raise UserError(
            "run.sequence_length is missing, and the model gives no max_position_embeddings to take instead"
        )
    if model.position == "learned" and sequence > (model.max_position_embeddings or 0):
        raise UserError(
            f"run.sequence_length = {sequence} is longer than model.max_position_embeddings = "
            f"{model.max_position_embeddings}, and learned positions cannot be stretched"
        )
    lora = run.lora if isinstance(run, TrainRun) else None
    heads = model.num_attention_heads
    return Job(
        model=model,
        recipe=recipe(run.precision, lora=lora is not None),
        lora=lora,
        eager=run.attention == "eager",
        batch=run.batch_size,
        sequence=sequence,
        tokens=run.batch_size * sequence,
        queries=heads * model.head_size,
        keys=model.kv_heads * model.head_size,
        scores=run.batch_size * heads * sequence * sequence,
    )
