"""What the rules read out of an ordinary workload."""

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload


def transformer(workload: Workload) -> TransformerModel | None:
    """The decoder-only transformer of a workload; None when the model is something else."""
    model = workload.model
    return model if isinstance(model, TransformerModel) else None


def training(workload: Workload) -> tuple[TransformerModel, TrainRun, int] | None:
    """Model, run and sequence length of a transformer's training; None when it is something else."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun) or run.sequence_length is None:
        return None
    return model, run, run.sequence_length


def full_training(workload: Workload) -> tuple[TransformerModel, TrainRun, int] | None:
    """As `training`, but None for LoRA as well: rules for a whole model's states know no adapters."""
    found = training(workload)
    return found if found is not None and found[1].lora is None else None


def inference(workload: Workload) -> tuple[TransformerModel, InferRun, int] | None:
    """Model, run and prompt length of a transformer's generation; None when it is something else."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, InferRun) or run.sequence_length is None:
        return None
    return model, run, run.sequence_length


def parameter_count(model: TransformerModel) -> int:
    """The card's count when it is given, else the shapes': attention, MLP, norms and embeddings."""
    if model.parameters is not None:
        return model.parameters
    hidden, ffn = model.hidden_size, model.ffn_size
    query, key = model.num_attention_heads * model.head_size, model.kv_heads * model.head_size
    attention = hidden * query * 2 + hidden * key * 2
    attention += (query + 2 * key) * model.attention_bias + hidden * model.output_bias
    mlp = (3 if model.gated_mlp else 2) * hidden * ffn
    mlp += model.mlp_bias * (ffn * (2 if model.gated_mlp else 1) + hidden)
    norm = 2 * hidden if model.norm == "layernorm" else hidden
    layer = attention + mlp + model.norms_per_layer * norm + 2 * model.head_size * model.qk_norm
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    if model.position == "learned":
        embeddings += (model.max_position_embeddings or 0) * hidden
    return model.num_hidden_layers * layer + norm + embeddings


def largest_tensor(model: TransformerModel) -> int:
    """Parameters of the largest single layer: the embedding, or one matrix of the MLP."""
    return max(model.vocab_size, model.ffn_size) * model.hidden_size
