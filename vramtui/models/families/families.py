"""Families of decoders that are built layer by layer like Llama, and in what each differs."""

from functools import partial

from vramtui.models.families import modelled
from vramtui.models.families.attention import compressed_attention
from vramtui.models.families.family import Family
from vramtui.models.families.family_parts import (
    DELAY_RANK,
    add_codes,
    add_moshi_row,
    add_rows,
    apertus_activation,
    bamba_kinds,
    beam_gate_bias,
    bitnet_norms,
    cpm_ant_tables,
    deci_layer,
    deepseek_v4_layer,
    diff_lambdas,
    doge_layer,
    ernie_experts,
    falcon_layer,
    gemma3n_inputs,
    gemma3n_layer,
    gemma4_attention,
    gemma4_inputs,
    gemma4_layer,
    gemma4_mlp,
    granite_hybrid_mlp,
    hyper_head,
    hyper_layer,
    jamba_kinds,
    mamba_kinds,
    mimo_attention,
    minimax_kinds,
    minimax_m3_indexer,
    modernbert_head,
    modernbert_layer,
    nemotron_experts,
    nemotron_mlp,
    no_mixer,
    no_mlp,
    post_mlp_norm,
    qwen_kinds,
    rope_norm,
)
from vramtui.models.families.public_keys import (
    deci_keys,
    deepseek_v4_keys,
    falcon_keys,
    gemma4_keys,
    half_ffn,
    hunyuan_keys,
    kimi_keys,
    laguna_keys,
    lfm2_width,
    llama4_keys,
    minimax_m3_keys,
    mpt_keys,
    nemotron_keys,
    step_keys,
)
from vramtui.models.families.recurrent import (
    bailing_delta,
    gated_delta,
    kimi_delta,
    lightning,
    mamba1,
    mamba1_normed,
    mamba2,
    olmo_delta,
    rg_lru,
    short_conv,
)

LLAMA = Family()
OLD = partial(Family, norm=2, gated=False, bias=True, mlp_bias=True)
MOE = partial(Family, correction_bias=True)
LATENT = partial(Family, mla=True, correction_bias=True)
RAISED = partial(Family, norm_in_fp32=True)
QWEN_NEXT = Family(
    qk_norm="head", gate="double", shared_gate=True, output_bias=False, mixers={"linear_attention": gated_delta}
)

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        ("aria_text", "cwm", "exaone", "granitemoe", "granitemoeshared", "hyperclovax_seed", "ministral",
         "ministral3"),
        LLAMA,
    ),
    **dict.fromkeys(
        ("granite", "internlm3", "iquestcoder", "llama", "mistral", "mixtral"), Family(operators=modelled.llama)
    ),
    "smollm3": Family(tied=True, operators=modelled.llama),
    "afmoe": MOE(norm_in_fp32=True, norms=4, qk_norm="head", gate="full"),
    "apertus": Family(qk_norm="head", gated=False, layer=apertus_activation),
    "arcee": Family(gated=False),
    "axk1": LATENT(layer=post_mlp_norm),
    "bailing_hybrid": LATENT(gate="head", mixers={"linear_attention": bailing_delta}),
    "bamba": Family(mixers={"linear_attention": mamba2}, kinds=bamba_kinds),
    "beam": Family(norms=4, qk_norm="head", gate="full", layer=beam_gate_bias, correction_bias=True),
    "biogpt": OLD(bias=True, tied=True, positions=("max_position_embeddings", 2)),
    "bitnet": Family(layer=bitnet_norms),
    "bloom": OLD(tied=True, more=lambda tensors, _keys, sizes: tensors.norm("embed_norm", sizes.hidden, bias=True)),
    "codegen": OLD(norms=1, bias=False, head_bias=True),
    "cohere": Family(norms=1, qk_norm="each", qk_norm_if="use_qk_norm", tied=True),
    "cohere2": Family(norms=1, tied=True),
    "cohere2_moe": Family(norms=1, tied=True),
    "cpmant": Family(tied=True, more=cpm_ant_tables),
    "ctrl": OLD(tied=True, head_bias=True),
    "deepseek_v2": Family(mla=True, operators=modelled.deepseek_v2),
    # As Kimi K2 and the text of K2.5 call what transformers builds as DeepSeek V3.
    **dict.fromkeys(("deepseek_v3", "kimi_k2"), LATENT(operators=modelled.deepseek_v3)),
    "deepseek_v32": LATENT(),
    "deepseek_v4": Family(
        attention=compressed_attention, layer=deepseek_v4_layer, more=hyper_head, prepare=deepseek_v4_keys
    ),
    "diffllama": Family(layer=diff_lambdas),
    "doge": Family(qk_norm="head", layer=doge_layer, sparse=lambda keys, _number: keys.flag("is_moe")),
    "dots1": MOE(qk_norm="head"),
    "dots3_note_text": LATENT(gate="head", layer=rope_norm, index_copies=2),
    "ernie4_5": Family(bias="use_bias", mlp_bias="use_bias", tied=True),
    "ernie4_5_moe": Family(bias="use_bias", mlp_bias="use_bias", tied=True, correction_bias=True),
    "exaone4": Family(qk_norm="head"),
    "exaone_moe": MOE(qk_norm="head"),
    "falcon": OLD(
        norms=0, bias="bias", mlp_bias="bias", tied=True, prepare=falcon_keys, layer=falcon_layer,
        operators=modelled.falcon,
    ),
    "falcon_h1": Family(layer=mamba2, mlp_bias="mlp_bias"),
    "falcon_mamba": Family(norms=1, tied=True, kinds=mamba_kinds, mixers={"linear_attention": mamba1}, mlp=no_mlp),
    "flex_olmo": RAISED(qk_norm="wide"),
    "gemma": RAISED(tied=True, operators=modelled.gemma),
    "gemma2": RAISED(norms=4, tied=True, operators=modelled.gemma2),
    "gemma3_text": RAISED(norms=4, qk_norm="head", tied=True, operators=modelled.gemma),
    "gemma3n_text": RAISED(
        norms=4, tied=True, attention=gemma4_attention, layer=gemma3n_layer, more=gemma3n_inputs
    ),
    "gemma4_text": RAISED(
        norms=4, tied=True, attention=gemma4_attention, mlp=gemma4_mlp, moe=gemma4_mlp, layer=gemma4_layer,
        more=gemma4_inputs, prepare=gemma4_keys,
    ),
    "flint": Family(qk_norm="head", sinks=True),
    "glm": Family(bias=("attention_bias", True), output_bias=False),
    "glm4": Family(bias=("attention_bias", True), output_bias=False, norms=4),
    "glm4_moe": MOE(output_bias=False, qk_norm="head", qk_norm_if="use_qk_norm"),
    "glm4_moe_lite": LATENT(),
    "glm_moe_dsa": LATENT(),
    "gemma4_unified_text": RAISED(
        norms=4, tied=True, attention=gemma4_attention, mlp=gemma4_mlp, moe=gemma4_mlp, layer=gemma4_layer,
        more=gemma4_inputs, prepare=gemma4_keys,
    ),
    "gpt2": OLD(tied=True, positions=("n_positions", 0), operators=modelled.gpt2),
    "gpt_bigcode": OLD(tied=True, positions=("n_positions", 0), operators=modelled.gpt_bigcode),
    "gptj": OLD(norms=1, bias=False, head_bias=True, operators=modelled.gptj),
    "gpt_neox": OLD(bias=("attention_bias", True), operators=modelled.gpt_neox),
    "gpt_neo": OLD(bias=False, output_bias=True, tied=True, positions=("max_position_embeddings", 0)),
    "gpt_neox_japanese": Family(
        norm=2, gated=False, bias=False, tied=True,
        more=lambda tensors, _keys, sizes: tensors.add("dense_bias", sizes.hidden),
        prepare=lambda keys: keys.changed(
            intermediate_size=keys.whole("intermediate_multiple_size", default=4) * keys.whole("hidden_size")
        ),
    ),
    "gpt_oss": RAISED(
        bias=("attention_bias", True), sinks=True, router_bias=True, expert_bias=True,
        expert_width=("intermediate_size",),
    ),
    "granite_swa": Family(sinks=True),
    "granitemoe_swa": Family(sinks=True),
    "granitemoehybrid": Family(
        mixers={"linear_attention": mamba2}, expert_width=("intermediate_size",), mlp=granite_hybrid_mlp
    ),
    "helium": RAISED(),
    "hunyuan_v1_dense": Family(qk_norm="head"),
    "hunyuan_v1_moe": Family(qk_norm="head", expert_width=("intermediate_size",), prepare=hunyuan_keys),
    "hy_v3": MOE(qk_norm="head"),
    "hy_v4": LATENT(gate="full", sinks=True, layer=hyper_layer, more=hyper_head),
    "hyperclovax": Family(
        norms=2,
        layer=lambda tensors, _caches, layer: tensors.norm(
            "post_norm", layer.sizes.hidden, count=2 * layer.keys.flag("use_post_norm", default=True)
        ),
    ),
    "jais2": Family(norm=2, gated=False, bias=("attention_bias", True), mlp_bias=("mlp_bias", True)),
    "jamba": Family(kinds=jamba_kinds, mixers={"linear_attention": mamba1_normed}),
    "kimi_linear": LATENT(mixers={"linear_attention": kimi_delta}, prepare=kimi_keys),
    "kolibri1": MOE(norms=4, qk_norm="head"),
    "kyutai_speech_to_text": Family(prepare=half_ffn, more=add_codes, bias=False),
    "laguna": MOE(qk_norm="head", gate="head", gate_if="gating", prepare=laguna_keys),
    "lfm2": Family(qk_norm="head", tied=True, bias=False, mixers={"conv": short_conv}, prepare=lfm2_width),
    "lfm2_moe": MOE(qk_norm="head", tied=True, bias=False, mixers={"conv": short_conv}),
    "lfm3": Family(
        norms=4, qk_norm="head", tied=True, gate="head", gate_if="use_attention_gate", mixers={"conv": short_conv}
    ),
    "llama4_text": Family(prepare=llama4_keys, expert_width=("intermediate_size",)),
    "mamba": Family(norms=1, tied=True, kinds=mamba_kinds, mixers={"linear_attention": mamba1}, mlp=no_mlp),
    "mamba2": Family(norms=1, kinds=mamba_kinds, mixers={"linear_attention": mamba2}, mlp=no_mlp),
    "mellum": Family(qk_norm="head"),
    "mimo_v2_flash": MOE(attention=mimo_attention),
    "minicpm3": Family(mla=True, tied=True),
    "minimax": Family(mixers={"linear_attention": lightning}, kinds=minimax_kinds, expert_width=("intermediate_size",)),
    "minimax_m2": MOE(qk_norm="wide", expert_width=("intermediate_size",)),
    **dict.fromkeys(
        ("minimax_m3", "minimax_m3_vl_text"),
        MOE(
            qk_norm="head", expert_width=("intermediate_size",), prepare=minimax_m3_keys, layer=minimax_m3_indexer
        ),
    ),
    "modernbert-decoder": Family(
        norms=1, tied=True, head_bias=("decoder_bias", True), layer=modernbert_layer, more=modernbert_head
    ),
    "moshi": Family(prepare=half_ffn, more=add_moshi_row, bias=False),
    "mpt": Family(gated=False, bias=False, tied=True, prepare=mpt_keys),
    "nanochat": Family(norm=0, gated=False),
    "nemotron": Family(norm=2, gated=False),
    "nemotron_h": RAISED(
        norms=1, gated=False, sparse=lambda _keys, _number: False, prepare=nemotron_keys,
        mixers={"linear_attention": mamba2, "moe": nemotron_experts, "mlp": no_mixer}, mlp=nemotron_mlp,
    ),
    "nemotron-nas": Family(norms=0, prepare=deci_keys, attention=no_mixer, mlp=no_mlp, layer=deci_layer),
    "olmo": Family(norm=0),
    "olmo2": RAISED(qk_norm="wide"),
    "olmo3": RAISED(qk_norm="wide"),
    "olmo_hybrid": RAISED(qk_norm="wide", mixers={"linear_attention": olmo_delta}),
    "olmoe": Family(qk_norm="wide"),
    "openai-gpt": OLD(tied=True, positions=("n_positions", 0), last_norm=False),
    "persimmon": OLD(qk_norm="head", qk_norm_bias=True, qk_norm_if="qk_layernorm"),
    "phimoe": Family(norm=2, expert_width=("intermediate_size",), head_bias="lm_head_bias"),
    "mimo": Family(bias=True, output_bias=False),
    "qwen2": Family(bias=True, output_bias=False, kinds=qwen_kinds, operators=modelled.llama),
    "qwen2_moe": Family(
        bias=("qkv_bias", True), output_bias=False, shared_gate=True, kinds=qwen_kinds, operators=modelled.qwen2_moe
    ),
    "qwen3": Family(qk_norm="head", kinds=qwen_kinds, operators=modelled.llama),
    "qwen3_moe": Family(qk_norm="head", shared=False, kinds=qwen_kinds, operators=modelled.llama),
    "qwen3_5_text": QWEN_NEXT,
    "qwen3_5_moe_text": QWEN_NEXT,
    "qwen3_next": QWEN_NEXT,
    "recurrent_gemma": RAISED(
        tied=True, output_bias=True, mlp_bias=True, mixers={"linear_attention": rg_lru},
        prepare=lambda keys: half_ffn(keys).changed(tie_word_embeddings=True),
    ),
    "seed_oss": Family(bias=("attention_bias", True), output_bias="attention_out_bias"),
    "solar_open": MOE(),
    "starcoder2": OLD(bias=("use_bias", True), mlp_bias=("use_bias", True), tied=True, operators=modelled.starcoder2),
    "stablelm": Family(
        norm=2, bias="use_qkv_bias", output_bias=False, qk_norm="each", qk_norm_if="qk_layernorm",
    ),
    "vaultgemma": RAISED(tied=True),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text"), Family(bias=True, output_bias=False)),
    "qwen3_vl_text": Family(qk_norm="head"),
    **dict.fromkeys(("qwen3_vl_moe_text", "qwen3_omni_moe_text"), Family(qk_norm="head", shared=False)),
    **dict.fromkeys(
        ("glm4v_text", "glm46v_text"), Family(bias=("attention_bias", True), output_bias=False, norms=4)
    ),
    "glm4v_moe_text": MOE(bias=("attention_bias", True), output_bias=False),
    "granite_docling_text": LLAMA,
    "phi": Family(
        norm=2, norms=1, gated=False, bias=True, mlp_bias=True, head_bias=True, qk_norm="head", qk_norm_bias=True,
        qk_norm_if="qk_layernorm", operators=modelled.phi,
    ),
    "phi3": Family(operators=modelled.phi3),
    "cosmos3_edge_text": Family(gated=False),
    "glm_ocr_text": Family(norms=4),
    "molmo2_text": Family(qk_norm="head", bias="qkv_bias", more=add_rows),
    "muse_glimmer_text": Family(norms=4, gate="full"),
    "paddleocr_vl_text": Family(bias="use_bias", output_bias="use_bias", mlp_bias="use_bias", tied=True),
    "step3p5": Family(qk_norm="head", gate="head", prepare=step_keys),
    "ernie4_5_vl_moe_text": Family(
        bias="use_bias", mlp_bias="use_bias", tied=True, correction_bias=True, moe=ernie_experts
    ),
    "unlimited_ocr_text": LLAMA,
    "voxtral_realtime_text": Family(
        tied=True,
        layer=lambda tensors, _caches, layer: tensors.linear("ada_norm", DELAY_RANK, layer.sizes.hidden, count=2),
    ),
    "xglm": OLD(tied=True),
    "youtu": Family(mla=True, tied=True),
}  # fmt: skip
