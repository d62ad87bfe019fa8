"""Families of decoders, and in what each differs from Llama. Their tensors are the generated shapes' (`shapes/`).

`operators` of a family add to `[model]` what its sizes do not say, with the defaults of transformers 5.23; they return
None for a config with operators that are not followed.
"""

from collections.abc import Callable
from functools import partial

import msgspec

from vramtui.models.families.caches import FULL, LINEAR, SLIDES, Layer
from vramtui.models.families.keys import POSITIONS, Keys, Table, activation, dropout_of
from vramtui.models.tensor_list import CacheList

Truth = bool | str | tuple[str, bool]
Keeps = Callable[[CacheList, Layer], None]
Operators = Callable[[Keys], Table | None]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of every model of a family. A truth is fixed, or a key of the config with its value if it is absent.

    Attributes:
        norm: style of its norms, as `[model]` has it; `norms` of them over the stream in each layer.
        qk_norm: norms on queries and keys.
        bias: biases of the projections to queries, keys and values.
        output_bias: bias of the attention's output projection; as `bias` when None.
        mlp_bias: biases in the MLP; `gated` for a gate beside the up projection.
        tied: the output layer is the embedding if the config does not say; `head_bias` for its bias.
        positions: the key with the number of learned positions, and how many rows more there are.
        mla: keys and values are compressed together.
        expert_width: the keys with an expert's width, if they are not the usual ones; `sparse` for the layers with
            experts, and `shared` for experts for all tokens.
        prepare: the config with the keys that transformers reads, made of those that public files have.
        widths: the config with sizes that its code works out, which the generated shapes know.
        kinds: kinds of the layers, if the usual keys do not list them.
        attention: the caches of layers that attend; `mixers` those of layers of other kinds.
        keeps: the caches of all layers, if they are not layer by layer.
        has_expert_biases: numbers that balance the load of experts, which are no parameters but in the file.
        operators: adds to `[model]`, if every operator is followed.
    """

    norm: str = "rmsnorm"
    norms: int = 2
    qk_norm: Truth = False
    bias: Truth = ("attention_bias", False)
    output_bias: Truth | None = None
    mlp_bias: Truth = ("mlp_bias", False)
    gated: bool = True
    tied: bool = False
    head_bias: Truth = False
    positions: tuple[str, int] | None = None
    mla: bool = False
    expert_width: tuple[str, ...] = ()
    sparse: Callable[[Keys, int], bool] | None = None
    shared: bool = True
    prepare: Callable[[Keys], Keys] | None = None
    widths: Callable[[Keys], Keys] | None = None
    kinds: Callable[[Keys, int], list[str]] = kinds_of
    attention: Keeps | None = None
    mixers: dict[str, Keeps] = {}
    keeps: Callable[[CacheList, Keys], None] | None = None
    has_expert_biases: bool = False
    operators: Operators | None = None


def truth(keys: Keys, what: Truth) -> bool:
    if isinstance(what, bool):
        return what
    name, default = (what, False) if isinstance(what, str) else what
    return keys.flag(name, default)


def guess_family(keys: Keys) -> Family:
    """The family that the config's own keys speak for."""
    names = keys.values.keys()
    layer_norm = not any("rms" in name for name in names) and any("layer_norm" in name for name in names)
    old = layer_norm or any(name in names for name in ("n_embd", "n_layer", "ffn_dim", "dff"))
    acts = " ".join(str(keys.values.get(name, "")) for name in ("hidden_act", "hidden_activation", "activation"))
    bias = next((name for name in ("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias") if name in names), None)
    return Family(
        norm="layernorm" if old else "rmsnorm",
        gated=not old or any(act in acts for act in ("silu", "swish", "swiglu", "geglu", "gelu_pytorch_tanh")),
        bias=(bias, False) if bias else old,
        output_bias=None if bias in {None, "attention_bias", "use_bias"} else False,
        mlp_bias=old,
        qk_norm=any(keys.flag(name) for name in ("use_qk_norm", "qk_norm", "qk_layernorm")),
        tied=keys.flag("tie_word_embeddings"),
        mla=all(keys.maybe(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim")),
        mixers=dict.fromkeys((LINEAR, "conv", "hybrid_linear"), by_keys),
    )


def _qwen_kinds(keys: Keys, count: int) -> list[str]:
    """Return the layers as listed, else those from `max_window_layers` on slide, if any do."""
    listed = keys.items("layer_types")
    if len(listed) >= count:
        return list(map(str, listed[:count]))
    first = keys.whole("max_window_layers", default=28) if keys.flag("use_sliding_window") else count
    return [FULL if number < first else SLIDES for number in range(count)]


def _periodic(keys: Keys, number: int) -> bool:
    """Return whether a layer of Jamba attends: one of each period does."""
    period = max(keys.whole("attn_layer_period", default=8), 1)
    return number % period == keys.whole("attn_layer_offset", default=4)


def operators_of(
    act: str = "silu",
    key: str = "hidden_act",
    *,
    hidden: str = "",
    attention: str = "attention_dropout",
    dropout: float = 0.0,
    **fixed: object,
) -> Callable[[Keys], Table]:
    """Operators with an activation and dropouts, by a config's keys and their defaults, and with fixed values."""
    return lambda keys: {
        "hidden_act": activation(keys.text(key, act)),
        **dropout_of(keys, hidden, attention, dropout),
        **fixed,
    }


def _gemma(keys: Keys) -> Table:
    """The older key of its activation meant the approximate one."""
    act = keys.text("hidden_activation") or keys.text("hidden_act", "gelu_pytorch_tanh")
    return LLAMA(keys) | {"hidden_act": "gelu_pytorch_tanh" if act == "gelu" else activation(act)}


def _gemma2(keys: Keys) -> Table:
    """Logits and scores are capped."""
    caps = (("final_logit_softcapping", 30.0), ("attn_logit_softcapping", 50.0))
    return _gemma(keys) | {name: keys.number(name, usual) for name, usual in caps}


def _deepseek(keys: Keys) -> Table:
    """Experts for all tokens are counted by their number."""
    counts = {name: keys.maybe(name) for name in ("num_key_value_heads", "n_shared_experts")}
    return LLAMA(keys) | {"head_dim": None, "shared_expert_intermediate_size": None, **counts}


def _gpt_neox(keys: Keys) -> Table:
    own = operators_of("gelu", hidden="hidden_dropout", fused_qkv=True)(keys)
    return own | {"parallel_residual": keys.flag("use_parallel_residual", default=True)}


def _falcon(keys: Keys) -> Table | None:
    """Falcon: shared heads are repeated for torch only in the later architecture."""
    if keys.flag("alibi"):
        return None
    later, shared = keys.flag("new_decoder_architecture"), keys.flag("multi_query", default=True)
    return operators_of("gelu", "activation", hidden="hidden_dropout", fused_qkv=True)(keys) | {
        "enable_gqa": later or not shared,
        "norms_per_layer": falcon_norms(keys),
        "parallel_residual": falcon_is_parallel(keys),
    }


def opt(keys: Keys) -> Table | None:
    """OPT has two rows of positions more than there are positions. OPT-350m norms after each part."""
    hidden = keys.whole("hidden_size")
    if keys.whole("word_embed_proj_dim", default=hidden) != hidden or not keys.flag("do_layer_norm_before", True):
        return None
    rows, dropout = keys.whole(*POSITIONS) + 2, keys.number("dropout", 0.1)
    return operators_of("relu", "activation_function")(keys) | {
        "max_position_embeddings": rows, "position": "learned", "hidden_dropout": dropout,
    }  # fmt: skip


LLAMA = operators_of()
_GPT = partial(operators_of, key="activation_function", hidden="resid_pdrop", attention="attn_pdrop")
_OLD = partial(Family, norm="layernorm", gated=False, bias=True, mlp_bias=True)
_MOE = partial(Family, has_expert_biases=True)
_LATENT = partial(Family, mla=True, has_expert_biases=True)
_RAISED = partial(Family, norm="gemma_rmsnorm")
_QWEN = partial(Family, kinds=_qwen_kinds)
_QKV = partial(Family, output_bias=False)
_WIDTH = ("intermediate_size",)
_DELTA: dict[str, Keeps] = {LINEAR: delta}
_MAMBA = partial(Family, norms=1, kinds=lambda _keys, count: [LINEAR] * count)
_BIASED = ("attention_bias", True)
_GEMMA4 = _RAISED(norms=4, tied=True, attention=gemma4_attention, prepare=gemma4_keys)
_MINIMAX_M3 = _MOE(
    qk_norm=True, expert_width=_WIDTH, prepare=minimax_m3_keys, attention=minimax_m3_attention
)
_HALF = partial(Family, widths=half_ffn)

FAMILIES: dict[str, Family] = {
    **dict.fromkeys((
        "aria_text", "bitnet", "cwm", "diffllama", "exaone", "granite_docling_text", "granite_swa", "granitemoe",
        "granitemoe_swa", "granitemoeshared", "hyperclovax", "hyperclovax_seed", "ministral", "ministral3", "olmo",
        "unlimited_ocr_text",
    ), Family()),
    **dict.fromkeys(("cpmant", "voxtral_realtime_text"), Family(tied=True)),
    **dict.fromkeys(("cohere2", "cohere2_moe", "cohere"), Family(norms=1, tied=True)),
    **dict.fromkeys(("glm_ocr_text", "muse_glimmer_text"), Family(norms=4)),
    **dict.fromkeys(("arcee", "cosmos3_edge_text", "nanochat"), Family(gated=False)),
    **dict.fromkeys(("exaone4", "flint", "hunyuan_v1_dense", "mellum", "olmoe", "qwen3_vl_text"), Family(qk_norm=True)),
    **dict.fromkeys(("qwen3_omni_moe_text", "qwen3_vl_moe_text"), Family(qk_norm=True, shared=False)),
    **dict.fromkeys(("granite", "internlm3", "iquestcoder", "llama", "mistral", "mixtral"), Family(operators=LLAMA)),
    **dict.fromkeys(("mimo", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text"), _QKV(bias=True)),
    **dict.fromkeys(("glm4", "glm46v_text", "glm4v_text"), _QKV(bias=_BIASED, norms=4)),
    **dict.fromkeys(("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next"), _QKV(qk_norm=True, mixers=_DELTA)),
    **dict.fromkeys(("dots1", "exaone_moe", "hy_v3"), _MOE(qk_norm=True)),
    **dict.fromkeys(("axk1", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa", "hy_v4"), _LATENT()),
    "bailing_hybrid": _LATENT(mixers=_DELTA),
    # Kimi K2 and the text of K2.5 are called so; transformers builds them as DeepSeek V3.
    **dict.fromkeys(("deepseek_v3", "kimi_k2"), _LATENT(
        operators=lambda keys: _deepseek(keys) | {"router_bias": True},
        prepare=lambda keys: keys.changed(model_type="deepseek_v3"),
    )),
    **dict.fromkeys(("minicpm3", "youtu"), Family(mla=True, tied=True)),
    **dict.fromkeys(("flex_olmo", "olmo2", "olmo3"), _RAISED(qk_norm=True)),
    **dict.fromkeys(("minimax_m3", "minimax_m3_vl_text"), _MINIMAX_M3),
    **dict.fromkeys(("gemma4_text", "gemma4_unified_text"), _GEMMA4),
    "afmoe": Family(norm="gemma_rmsnorm", norms=4, qk_norm=True),
    "apertus": Family(qk_norm=True, gated=False),
    "bamba": Family(
        mixers={LINEAR: mamba2},
        kinds=lambda keys, count: [FULL if at in keys.items("attn_layer_indices") else LINEAR for at in range(count)],
    ),
    "beam": _MOE(norms=4, qk_norm=True),
    "biogpt": _OLD(tied=True, positions=("max_position_embeddings", 2)),
    "bloom": _OLD(tied=True),
    "codegen": _OLD(norms=1, bias=False, head_bias=True),
    "ctrl": _OLD(tied=True, head_bias=True),
    "deepseek_v2": Family(mla=True, operators=_deepseek),
    "deepseek_v4": Family(attention=compressed_attention, prepare=deepseek_v4_keys),
    "doge": Family(qk_norm=True, sparse=lambda keys, _number: keys.flag("is_moe")),
    "dots3_note_text": _LATENT(attention=twice_mla, prepare=dots3_keys),
    **dict.fromkeys(("ernie4_5", "ernie4_5_vl_moe_text"), Family(bias="use_bias", mlp_bias="use_bias", tied=True)),
    "ernie4_5_moe": _MOE(bias="use_bias", mlp_bias="use_bias", tied=True),
    "falcon": _OLD(
        norms=0, bias="bias", mlp_bias="bias", tied=True, prepare=falcon_keys, operators=_falcon
    ),
    "falcon_h1": Family(attention=attention_and_mamba2),
    "falcon_mamba": _MAMBA(tied=True, mixers={LINEAR: mamba1}, prepare=mamba_keys),
    "gemma": _RAISED(tied=True, operators=_gemma),
    "gemma2": _RAISED(norms=4, tied=True, operators=_gemma2),
    "gemma3_text": _RAISED(norms=4, qk_norm=True, tied=True, operators=_gemma),
    "gemma3n_text": _RAISED(norms=4, tied=True, attention=gemma4_attention),
    "glm": _QKV(bias=_BIASED),
    "glm4_moe": _MOE(output_bias=False, qk_norm="use_qk_norm"),
    "glm4v_moe_text": _MOE(bias=_BIASED, output_bias=False),
    "gpt2": _OLD(tied=True, positions=("n_positions", 0), operators=_GPT("gelu_new", dropout=0.1, fused_qkv=True)),
    "gpt_bigcode": _OLD(
        tied=True, positions=("n_positions", 0), operators=_GPT("gelu_pytorch_tanh", dropout=0.1, fused_qkv=True)
    ),
    "gptj": _OLD(norms=1, bias=False, head_bias=True, operators=_GPT("gelu_new", parallel_residual=True)),
    "gpt_neox": _OLD(bias=_BIASED, operators=_gpt_neox),
    "gpt_neo": _OLD(bias=False, output_bias=True, tied=True, positions=("max_position_embeddings", 0)),
    "gpt_neox_japanese": Family(
        norm="layernorm", gated=False, bias=False, tied=True,
        widths=lambda keys: keys.changed(
            intermediate_size=keys.whole("intermediate_multiple_size", default=4) * keys.whole("hidden_size")
        ),
    ),
    "gpt_oss": _RAISED(bias=_BIASED, expert_width=_WIDTH),
    "granitemoehybrid": Family(mixers={LINEAR: mamba2}, expert_width=_WIDTH),
    "helium": _RAISED(),
    "hrm_text": Family(keeps=hrm),
    "hunyuan_v1_moe": Family(qk_norm=True, expert_width=_WIDTH, prepare=hunyuan_keys),
    "jais2": Family(norm="layernorm", gated=False, bias=_BIASED, mlp_bias=("mlp_bias", True)),
    "jamba": Family(
        kinds=lambda keys, count: [FULL if _periodic(keys, number) else LINEAR for number in range(count)],
        mixers={LINEAR: mamba1},
    ),
    "jetmoe": Family(keeps=jetmoe, tied=True),
    "kimi_linear": _LATENT(mixers=_DELTA, prepare=kimi_keys),
    "kolibri1": _MOE(norms=4, qk_norm=True),
    "kyutai_speech_to_text": _HALF(bias=False),
    "laguna": Family(qk_norm=True, prepare=laguna_keys),
    "lfm2": Family(
        qk_norm=True, tied=True, bias=False, mixers={"conv": short_conv}, prepare=lfm2_keys,
        widths=lfm2_width,
    ),
    "lfm2_moe": _MOE(qk_norm=True, tied=True, bias=False, mixers={"conv": short_conv}),
    "lfm3": Family(norms=4, qk_norm=True, tied=True, mixers={"conv": short_conv}),
    "llama4_text": Family(prepare=llama4_keys, expert_width=_WIDTH),
    "longcat_flash": _MOE(keeps=longcat),
    "mamba": _MAMBA(tied=True, mixers={LINEAR: mamba1}, prepare=mamba_keys),
    "mamba2": _MAMBA(mixers={LINEAR: mamba2}),
    "mimo_v2_flash": _MOE(attention=mimo_attention),
    "minimax": Family(mixers={LINEAR: lightning}, kinds=minimax_kinds, expert_width=_WIDTH),
    "minimax_m2": _MOE(qk_norm=True, expert_width=_WIDTH),
    "mllama_text_model": Family(keeps=mllama),
    "modernbert-decoder": Family(norms=1, tied=True, head_bias=("decoder_bias", True)),
    "molmo2_text": Family(qk_norm=True, bias="qkv_bias"),
    "moshi": _HALF(bias=False),
    "mpt": Family(gated=False, bias=False, tied=True, widths=mpt_width),
    "nemotron": Family(norm="layernorm", gated=False),
    "nemotron-nas": Family(norms=0, prepare=deci_keys, attention=deci_attention),
    "nemotron_h": _RAISED(
        norms=1, gated=False, sparse=lambda _keys, _number: False, prepare=nemotron_keys,
        mixers={LINEAR: mamba2, "moe": nothing, "mlp": nothing}, has_expert_biases=True,
    ),
    "olmo_hybrid": _RAISED(qk_norm=True, mixers=_DELTA),
    "openai-gpt": _OLD(tied=True, positions=("n_positions", 0)),
    "paddleocr_vl_text": Family(bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", tied=True),
    "persimmon": _OLD(qk_norm="qk_layernorm"),
    "phi": Family(
        norm="layernorm", norms=1, gated=False, bias=True, mlp_bias=True, head_bias=True, qk_norm="qk_layernorm",
        operators=operators_of("gelu_new", hidden="resid_pdrop", parallel_residual=True),
    ),
    "phi3": Family(operators=operators_of(hidden="resid_pdrop", fused_qkv=True)),
    "phimoe": Family(norm="layernorm", expert_width=_WIDTH, head_bias="lm_head_bias"),
    "prophetnet": Family(keeps=prophetnet, tied=True),
    "qwen2": _QWEN(bias=True, output_bias=False, operators=LLAMA),
    "qwen2_moe": _QWEN(bias=("qkv_bias", True), output_bias=False, operators=operators_of(shared_expert_gate=True)),
    "qwen3": _QWEN(qk_norm=True, operators=LLAMA),
    "qwen3_moe": _QWEN(qk_norm=True, shared=False, operators=LLAMA),
    "recurrent_gemma": _RAISED(
        tied=True, output_bias=True, mlp_bias=True, mixers={LINEAR: rg_lru},
        widths=lambda keys: half_ffn(keys).changed(tie_word_embeddings=True),
    ),
    "rwkv": Family(keeps=rwkv),
    "seed_oss": Family(bias=_BIASED, output_bias="attention_out_bias"),
    "smollm3": Family(tied=True, operators=LLAMA),
    "solar_open": _MOE(),
    "stablelm": _QKV(norm="layernorm", bias="use_qkv_bias"),
    "starcoder2": _OLD(
        bias=("use_bias", True), mlp_bias=("use_bias", True), tied=True,
        operators=operators_of("gelu_pytorch_tanh", hidden="residual_dropout"),
    ),
    "step3p5": Family(qk_norm=True, prepare=step_keys),
    "vaultgemma": _RAISED(tied=True),
    "xglm": _OLD(tied=True),
    "xlnet": Family(keeps=xlnet, tied=True),
    "xlstm": Family(keeps=xlstm),
    "zamba": Family(keeps=zamba, tied=True),
    "zamba2": Family(keeps=zamba2, tied=True, prepare=zamba2_keys),
}  # fmt: skip
