"""The tensors of adapters (LoRA, DoRA) beside a model's linear layers."""

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.models import DiffusionTransformerModel, Model, PipelineModel, TransformerModel, UNetModel
from vramtui.core.schema.workload import Lora
from vramtui.models.kinds import LinearModule, linear_parts
from vramtui.models.spec import ModelSpec, Parameter
from vramtui.models.specs.decoder import attention_of

# What diffusers' LoRA scripts adapt (examples/dreambooth/train_dreambooth_lora_sdxl.py).
DIFFUSERS_MODULES = ("to_q", "to_k", "to_v", "to_out")


def adapter_tensors(spec: ModelSpec, lora: Lora) -> tuple[Parameter, ...]:
    """The A (rank x in) and B (out x rank) matrices beside every targeted linear layer; DoRA's magnitudes (out).

    A target that is only in the experts has none, as peft passes over what it does not find as long as it finds
    another (peft 0.21, tuners/tuners_utils.py, `inject_adapter`).

    Raises:
        UserError: a target is not a linear layer of the model's blocks, or all are in the experts.
    """
    layers = linear_layers(spec)
    tensors: list[Parameter] = []
    for target in lora.target_modules:
        if target not in layers:
            guess = nearest(target, layers)
            raise UserError(
                f"run.lora.target_modules: {target!r} is not a linear layer of this model{guess}; "
                f"it has: {', '.join(layers)}"
            )
        layer, count = layers[target]
        if not count:
            continue
        tensors.append(Parameter(target, (lora.rank, layer.in_features), count, layer=True))
        tensors.append(Parameter(target, (layer.out_features, lora.rank), count, layer=True))
        if lora.use_dora:
            tensors.append(Parameter(target, (layer.out_features,), count, layer=True))
    if not tensors and lora.target_modules:
        named = ", ".join(lora.target_modules)
        raise UserError(f"run.lora.target_modules: {named} are in the experts, where peft puts no adapters")
    return tuple(tensors)


def adapted_modules(model: Model) -> tuple[str, ...]:
    """The linear layers of a model's attentions, by the names it has for them; none if adapters are not known."""
    if isinstance(model, TransformerModel):
        return tuple(linear_parts(attention_of(model)))
    return DIFFUSERS_MODULES if isinstance(model, UNetModel | DiffusionTransformerModel | PipelineModel) else ()


def linear_layers(spec: ModelSpec) -> dict[str, tuple[LinearModule, int]]:
    """The linear layers of the blocks by name, and how many there are; none of those that only experts have."""
    layers: dict[str, tuple[LinearModule, int]] = {}
    for block in spec.blocks:
        for module in block.modules:
            routed = module.kind == "moe"
            for name, part in linear_parts(module.adapted()).items():
                first, count = layers.get(name, (part, 0))
                layers[name] = first, count + (0 if routed else block.count(0, spec.layers))
    return layers


# What families of transformers call a linear layer, as peft's `target_modules` has it, beside the names used here.
_NAMES_ELSEWHERE: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("query_key_value", "Wqkv", "c_attn"), (("qkv_proj",), ("q_proj", "k_proj", "v_proj"))),
    **dict.fromkeys(("dense", "out_proj", "output_proj"), (("o_proj",),)),
    **dict.fromkeys(("dense_h_to_4h", "c_fc", "fc1", "fc_in", "w3"), (("up_proj",),)),
    **dict.fromkeys(("dense_4h_to_h", "fc2", "fc_out", "w2"), (("down_proj",),)),
    "w1": (("gate_proj",),),
}
ALL_LINEAR = "all-linear"  # peft's word for every linear layer but the head


def resolve_target_modules(spec: ModelSpec, lora: Lora) -> Lora:
    """The adapters with their layers named as here, where the model's family calls them otherwise; `all-linear` is
    every linear layer of its blocks. Experts, whose weights are one tensor, have none.
    """
    layers = linear_layers(spec)
    names: list[str] = []
    for target in lora.target_modules:
        if target == ALL_LINEAR:
            names += [name for name, (_, count) in layers.items() if count]
            continue
        known = () if target in layers else _NAMES_ELSEWHERE.get(target, ())
        names += next((own for own in known if layers.keys() >= set(own)), (target,))
    return msgspec.structs.replace(lora, target_modules=tuple(dict.fromkeys(names)))
