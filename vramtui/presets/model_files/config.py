"""A Hugging Face config.json as the `[model]` table of a preset, by the architecture it names."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from vramtui.core.errors import UserError, nearest
from vramtui.core.text import printable
from vramtui.presets.model_files import decoders, encoders, mixtures
from vramtui.presets.model_files.bounded import MOST_CONFIG, Damaged, open_plain, shown
from vramtui.presets.model_files.fields import Fields, Table

ARCHITECTURES: dict[str, Callable[[Fields], Table]] = {
    "BartForConditionalGeneration": encoders.bart,
    "BertForMaskedLM": encoders.bert_mlm,
    "BertForSequenceClassification": encoders.bert_classes,
    "BertModel": encoders.bert_model,
    "DeepseekV2ForCausalLM": mixtures.deepseek_v2,
    "DeepseekV3ForCausalLM": mixtures.deepseek_v3,
    "Gemma2ForCausalLM": decoders.gemma2,
    "Gemma3ForCausalLM": decoders.gemma3,
    "GemmaForCausalLM": decoders.gemma,
    "GPT2LMHeadModel": decoders.gpt2,
    "GPTBigCodeForCausalLM": decoders.gpt_bigcode,
    "GPTJForCausalLM": decoders.gptj,
    "GPTNeoXForCausalLM": decoders.gpt_neox,
    "GraniteForCausalLM": decoders.llama,
    "LlamaForCausalLM": decoders.llama,
    "MistralForCausalLM": decoders.mistral,
    "MixtralForCausalLM": mixtures.mixtral,
    "OPTForCausalLM": decoders.opt,
    "Phi3ForCausalLM": decoders.phi3,
    "PhiForCausalLM": decoders.phi,
    "Qwen2ForCausalLM": decoders.qwen2,
    "Qwen2MoeForCausalLM": mixtures.qwen2_moe,
    "Qwen3ForCausalLM": decoders.qwen3,
    "Qwen3MoeForCausalLM": mixtures.qwen3_moe,
    "RobertaForMaskedLM": encoders.bert_mlm,
    "RobertaForSequenceClassification": encoders.bert_classes,
    "RobertaModel": encoders.bert_model,
    "SmolLM3ForCausalLM": decoders.smollm3,
    "Starcoder2ForCausalLM": decoders.starcoder2,
    "T5ForConditionalGeneration": encoders.t5,
    "ViTForImageClassification": encoders.vit_classes,
    "ViTModel": encoders.vit_model,
    "WhisperForConditionalGeneration": encoders.whisper,
}
# Models that see as well as read, by the architecture of the language model in their text_config.
WITH_TEXT: dict[str, str] = {
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "LlavaForConditionalGeneration": "LlamaForCausalLM",
    "Mistral3ForConditionalGeneration": "MistralForCausalLM",
}
# What a config without `architectures` is taken for.
BY_TYPE: dict[str, str] = {
    "bart": "BartForConditionalGeneration",
    "bert": "BertModel",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "gpt_bigcode": "GPTBigCodeForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "gptj": "GPTJForCausalLM",
    "granite": "GraniteForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "opt": "OPTForCausalLM",
    "phi": "PhiForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "roberta": "RobertaModel",
    "smollm3": "SmolLM3ForCausalLM",
    "starcoder2": "Starcoder2ForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "vit": "ViTModel",
    "whisper": "WhisperForConditionalGeneration",
}
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


class ConfigFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a config.json says.

    Attributes:
        architecture: as it names it.
        model: a `[model]` table.
        precision: what its weights are kept in, as a preset writes it; None where it does not tell.
        quantization: how they are kept instead, as a preset writes it.
        partial: only its language model is described; it has other parts.
    """

    architecture: str
    model: Table
    precision: str | None = None
    quantization: str | None = None
    partial: bool = False


def read_config(path: Path) -> ConfigFile:
    """The config at `path`.

    Raises:
        UserError: it cannot be read, is no config, or is one of an architecture that is not known.
    """
    file, _ = open_plain(path)
    with file:
        content = file.read(MOST_CONFIG + 1)
    if len(content) > MOST_CONFIG:
        raise UserError(f"{shown(path)} is larger than 1 MiB, which no config.json is")
    try:
        values = msgspec.json.decode(content, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{shown(path)} is no config.json: it is not a JSON object") from None
    try:
        return parse_config(values)
    except Damaged as error:
        raise UserError(f"{shown(path)} {error}") from None


def parse_config(values: dict[str, object]) -> ConfigFile:
    """What the decoded config says.

    Raises:
        Damaged: its architecture is not known, or a key of it is wrong.
    """
    config = Fields(values)
    name = _architecture(config)
    inner = config
    if name in WITH_TEXT:
        inner = config.table("text_config")
    model = ARCHITECTURES[WITH_TEXT.get(name, name)](inner)
    stored = inner.values.get("dtype") or inner.values.get("torch_dtype")
    stored = stored or config.values.get("dtype") or config.values.get("torch_dtype")
    return ConfigFile(
        architecture=name,
        model={key: value for key, value in model.items() if value is not None},
        precision=PRECISIONS.get(stored.removeprefix("torch.")) if isinstance(stored, str) else None,
        quantization=_quantization(config.table("quantization_config")),
        partial=name in WITH_TEXT,
    )


def _architecture(config: Fields) -> str:
    known = (*ARCHITECTURES, *WITH_TEXT)
    named = config.texts("architectures")
    for name in named:
        if name in known:
            return name
    if named:
        said = printable(named[0][:60])
        listed = ", ".join(sorted(known, key=str.lower))
        raise Damaged(f"is of the architecture {said!r}{nearest(named[0][:60], known)}; known are: {listed}")
    kind = config.text("model_type", "")
    if kind not in BY_TYPE:
        if kind:
            said = printable(kind[:40])
            raise Damaged(
                f"has model_type = {said!r}{nearest(kind[:40], BY_TYPE)}; known are: {', '.join(sorted(BY_TYPE))}"
            )
        raise Damaged("is no config.json of a model: it has neither architectures nor model_type")
    return BY_TYPE[kind]


def _quantization(config: Fields) -> str | None:
    """The nearest that a run can say; unknown methods are passed over."""
    method = config.text("quant_method", "bitsandbytes" if config.has("load_in_4bit") else "")
    if method == "bitsandbytes":
        if not config.has("load_in_4bit"):
            return "int8" if config.has("load_in_8bit") else None
        return "nf4-double" if config.has("bnb_4bit_use_double_quant") else "nf4"
    if method == "fp8":
        return "fp8"
    if method in {"gptq", "awq"}:
        return {4: "int4", 8: "int8"}.get(config.whole("bits", config.whole("w_bit", 4)))
    return None
