"""A diffusion transformer of a preset's `[model]` table (FLUX, SD3, Qwen-Image, Wan), as what it consists of.

Layers are named as in diffusers' FluxTransformer2DModel, SD3Transformer2DModel, QwenImageTransformer2DModel and
WanTransformer3DModel.
"""

from functools import lru_cache

from vramtui.core.schema.models import DiffusionTransformerModel
from vramtui.models.kinds import EmbeddingModule, LinearModule, NormModule
from vramtui.models.spec import ModelSpec, Module, RepeatedBlock

STEPS = 256  # sinusoids of a time step


@lru_cache(maxsize=64)  # as a decoder's
def diffusion_transformer_spec(model: DiffusionTransformerModel) -> ModelSpec:
    """Modules of the transformer; each sort of its blocks has a name."""
    if model.design == "wan":
        return _wan(model)
    d, packed, words = block_width(model), model.packed, model.joint_attention_dim
    before = [*_embedder("timestep_embedder", STEPS, d)]
    if model.design != "qwen-image":
        before += _embedder("text_embedder", model.pooled_projection_dim, d)
    if model.guidance_embeds:
        before += _embedder("guidance_embedder", STEPS, d)
    before.append(_linear("x_embedder", packed[0], d))
    if model.design == "qwen-image":
        before.append(NormModule(name="txt_norm", size=words))
    before.append(_linear("context_embedder", words, d))
    # Blocks whose image is looked at twice, those of two streams, the last one of SD3, and those of one stream.
    last = int(model.design == "sd3" and model.num_layers > 0)
    dual = min(model.dual_attention_layers, model.num_layers - last)
    counts = {"dual": dual, "double": model.num_layers - last - dual, "last": last, "single": model.num_single_layers}
    sorts, start = [], 0
    for name, count in counts.items():
        if name == "single":
            joined = _linear("proj_mlp", d, 4 * d), _linear("proj_out", 5 * d, d)
            modules = (_linear("norm", d, 3 * d), *_projections(model), *joined)
        else:
            modules = _double(model, name)
        if count:
            sorts.append(RepeatedBlock(name=name, modules=modules, start=start, stop=start + count))
        start += count
    return ModelSpec(
        before=tuple(before),
        blocks=tuple(sorts),
        after=(_linear("norm_out", d, 2 * d), _linear("proj_out", d, packed[1])),
        layers=model.num_layers + model.num_single_layers,
    )


def block_width(model: DiffusionTransformerModel) -> int:
    return model.num_attention_heads * model.attention_head_dim


def _linear(name: str, inner: int, outer: int) -> LinearModule:
    return LinearModule(name=name, out_features=outer, in_features=inner, bias=True)


def _embedder(name: str, inner: int, width: int) -> tuple[Module, ...]:
    """Two layers with an activation between."""
    return _linear(f"{name}_1", inner, width), _linear(f"{name}_2", width, width)


def _projections(model: DiffusionTransformerModel, *, text: bool = False) -> tuple[Module, ...]:
    d = block_width(model)
    names = ("add_q_proj", "add_k_proj", "add_v_proj") if text else ("to_q", "to_k", "to_v")
    prefix = "add_" if text else ""
    norms = [NormModule(name=f"{prefix}norm_{one}", size=model.attention_head_dim) for one in "qk" if model.qk_norm]
    return (*(_linear(name, d, d) for name in names), *norms)


def _double(model: DiffusionTransformerModel, name: str) -> tuple[Module, ...]:
    d, parts = block_width(model), list[Module]()
    vectors = {"norm1": 9 if name == "dual" else 6, "context_norm1": 2 if name == "last" else 6}
    parts += [_linear(norm, d, count * d) for norm, count in vectors.items()]
    parts += _projections(model)
    parts += _projections(model, text=True)
    parts += [_linear(out, d, d) for out in ("to_out", "to_add_out")[: 1 if name == "last" else 2]]
    if name == "dual":
        parts += _projections(model)
        parts.append(_linear("to_out", d, d))
    for prefix in ("", "context_")[: 1 if name == "last" else 2]:
        parts += [_linear(f"{prefix}ff_in", d, 4 * d), _linear(f"{prefix}ff_out", 4 * d, d)]
    return tuple(parts)


def _wan(model: DiffusionTransformerModel) -> ModelSpec:
    d, packed = block_width(model), model.packed
    inner = model.ffn_dim or 4 * d
    attention = (
        *(_linear(name, d, d) for name in ("to_q", "to_k", "to_v")),
        *(NormModule(name=f"norm_{one}", size=d) for one in "qk"),
        _linear("to_out", d, d),
    )
    modules = (
        _shifts(6, d), *attention, NormModule(name="norm2", size=d, style="layernorm"), *attention,
        _linear("ffn_in", d, inner), _linear("ffn_out", inner, d),
    )  # fmt: skip
    return ModelSpec(
        before=(
            *_embedder("time_embedder", STEPS, d),
            _linear("time_proj", d, 6 * d),
            *_embedder("text_embedder", model.joint_attention_dim, d),
            _linear("patch_embedding", packed[0], d),
        ),
        blocks=(RepeatedBlock(name="wan", modules=modules, start=0, stop=model.num_layers),),
        after=(_shifts(2, d), _linear("proj_out", d, packed[1])),
        layers=model.num_layers,
    )


def _shifts(rows: int, width: int) -> EmbeddingModule:
    """A table that is added to the step's scales and shifts."""
    return EmbeddingModule(name="scale_shift_table", rows=rows, width=width, batched=True)
