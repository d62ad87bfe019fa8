"""Encoders that are known by their tensors (ELECTRA, DistilBERT, ALBERT, MPNet, ModernBERT …; DINOv2, wav2vec 2): their
passes are BERT's, or ModernBERT's where a norm stands behind the last block, with weights as listed.

Shapes: as in `encoder`; a gated MLP is (b, s, 2·f) and (b, s, f).
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.encoder_models import EncoderModel
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.models.decoder import sequence_of
from vramtui.estimators.analytic.models.encoder import Encoder, EncoderStyle
from vramtui.estimators.analytic.sizes.precision import numel_of
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.tape import Tape
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import decoder_spec

# Scores get a learned bias by distance, which these models add in Python.
_RELATIVE = "relative"


def listed_encoder_program(model: TransformerModel, run: TrainRun | InferRun, device: Device) -> Program:
    """The program of an encoder with the tensors that are listed."""
    spec = decoder_spec(model)
    sizes = {tensor.name: tensor.shape for tensor in reversed(model.tensors)}
    if _RELATIVE in sizes:
        run = msgspec.structs.replace(run, attention="eager")
    run = msgspec.structs.replace(run, sequence_length=sequence_of(model, run))
    first = "norm" in sizes
    head: Literal["mlm", "classes", "none"] = "mlm"
    labels = sizes["class_out"][0] if "class_out" in sizes else model.vocab_size
    if spec.reads_images_or_sound:
        head = "classes" if "classifier" in sizes else "none"
    elif "class_out" in sizes:
        head = "classes"
    twin = EncoderModel(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        intermediate_size=model.ffn_size,
        vocab_size=model.vocab_size,
        type_vocab_size=sizes.get("embed_token_types", (0,))[0],
        max_position_embeddings=sizes["embed_positions"][0] if "embed_positions" in sizes else None,
        norm_first=first,
        norm_after=first,
        hidden_act=model.hidden_act,
        head=head,
        num_labels=labels,
        hidden_dropout=model.hidden_dropout,
        attention_dropout=model.attention_dropout,
    )
    up, down = (next((sizes[name] for name in names if name in sizes), (0, 0)) for names in (_UP, _DOWN))
    style = EncoderStyle(
        gated=len(down) > 1 and up[0] == 2 * down[1] > 0,
        upcast=first and not twin.max_position_embeddings,
        width=sizes["embed_tokens"][1] if "embed_tokens" in sizes else None,
    )
    program = Encoder(twin, run, device, style).program()
    tensors = spec.tensors()
    for part in (True, False):
        written, listed = (_of(part, each) for each in (program.trained, tensors))
        tapes = [stage.tape for stage in program.stages if (stage is program.stages[1]) is part]
        _scale(tapes, numel_of(listed), numel_of(written))
    trained_frozen = (tensors, ()) if program.trained else ((), tensors)
    return msgspec.structs.replace(program, trained=trained_frozen[0], frozen=trained_frozen[1])


_UP, _DOWN = ("up", "up_proj"), ("down", "down_proj")


def _of(layer: bool, tensors: Sequence[Parameter]) -> list[Parameter]:
    return [tensor for tensor in tensors if tensor.layer is layer]


def _scale(tapes: Sequence[Tape], listed: int, written: int) -> None:
    """Gradients of as many numbers as are listed: layers may share theirs, embeddings be narrower."""
    if listed == written or not written:
        return
    for node in (node for tape in tapes for node in tape.nodes):
        node.set_gradient(rounded(node.grad_bytes * listed // written))
