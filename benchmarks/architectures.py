"""How many of transformers' architectures are answered from their config alone, and how many to the number.

    make python ARGS=benchmarks/architectures.py       # prints the table
    python benchmarks/architectures.py --rest          # and every other by name, with how far off it is
    python benchmarks/architectures.py --markdown >docs/models.md

The truth is recorded in tests/golden/architectures by `architectures_golden.py`: what transformers builds on the meta
device from each default config.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import Preset
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.readers.bounded import Damaged
from vramtui.models.readers.config_json import parse_config
from vramtui.presets.model_presets import tables_of_config

GOLDEN = Path(__file__).parent.parent / "tests" / "golden" / "architectures"
KINDS = {
    "causal": "causal language models",
    "image-text": "image-text models",
    "audio-text": "audio-text models",
    "masked": "masked language models",
    "speech": "speech to text",
    "ctc": "speech, letter by letter (CTC)",
    "image-classes": "image classification",
    "zero-shot-images": "images beside texts",
    "segmentation": "semantic segmentation",
    "depth": "depth estimation",
    "detection": "object detection",
    "mask-generation": "masks for prompts",
    "text-embedding": "embeddings of texts",
    "ranking": "classes of texts, and rerankers",
}
# What each has that no family and no blueprint describes yet: those that are not equal.
STAGES = "stages of convolutions"
REASONS: dict[str, dict[str, str]] = {
    "causal": {
        "axk2": "norms that are gated, and queries and gate in one projection",
        "blt": "no size of the whole model, only of its parts",
        "deepseek_v2": "its default config says no num_experts_per_tok",
        "inkling2_text": "learned distances and convolutions",
        "inkling_text": "learned distances and convolutions",
        "zaya": "convolutions over queries and keys",
    },
    "image-text": {
        "dots3_note": "towers with experts, and one for sound",
        "evolla": "an encoder of proteins",
        "glm5_next": "hyper-connections and keys pooled by the indexer",
        "inkling2": "learned distances and convolutions",
        "inkling_mm_model": "learned distances and convolutions",
        "janus": "a second model, which draws images",
        "lfm3_vl": "convolutions among the layers of its tower",
        "mistral_large4": "scales of its scores, and layers without rotary keys",
        "muse_spark": "experts on a narrower stream, and a tower for sound",
        "pi0": "an image-text model and one for actions, in a table of its own each",
        "t5gemma2": "an encoder of words beside the decoder",
        "udop": "a T5 that reads where words stand",
    },
    "audio-text": {},
    "masked": {
        "neomme": "words and values of a low rank, and gates on what it attends to",
        "perceiver": "latents that attend to bytes",
        "reformer": "two kinds of hashed attention and positions along two axes",
    },
    "speech": {
        **dict.fromkeys(("seamless_m4t", "seamless_m4t_v2"), "encoders of speech and of text, and a vocoder"),
        "speech-encoder-decoder": "two models of any types",
        "vibevoice": "a diffusion head and two tokenizers of sound",
    },
    "ctc": {
        "granite_speech5_ctc": "a conformer with a second head in its middle",
        "lasr_ctc": "a conformer with linear layers around its convolutions",
    },
    "image-classes": {
        **dict.fromkeys(("cvt", "hgnet_v2", "levit", "pp_lcnet", "swiftformer", "textnet"), STAGES),
        **dict.fromkeys(("mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2"), STAGES),
        "imagegpt": "a decoder of pixels whose head is for classes",
        "perceiver": "latents that attend to pixels",
        "shieldgemma2": "Gemma 3 with a head for classes",
    },
    "zero-shot-images": {
        "align": "EfficientNet beside BERT",
        "altclip": "CLIP beside XLM-RoBERTa",
        "blip": "heads for pairs",
        "blip-2": "heads for pairs",
        **dict.fromkeys(("tipsv2", "videoprism"), "towers of their own"),
    },
    "segmentation": {
        "data2vec-vision": "UperNet's head on a vision transformer",
        **dict.fromkeys(("mobilenet_v2", "mobilevit", "mobilevitv2"), STAGES),
        "tipsv2_dpt": "a tower of its own",
    },
    "depth": {
        **dict.fromkeys(("chmv2", "tipsv2_dpt"), "a tower of its own"),
        "depth_pro": "three encoders over patches of three sizes",
        "prompt_depth_anything": "a second depth that is read in the neck",
    },
    "detection": {
        **dict.fromkeys(("d_fine", "deimv2"), "boxes as distributions, on stages that reuse their inputs"),
        **dict.fromkeys(("lw_detr", "rf_detr"), "a vision transformer with windows beneath a detector"),
        **dict.fromkeys(
            ("pp_doclayout_v2", "pp_doclayout_v3", "pp_doclayout_v4"), "a detector that orders what it finds"
        ),
        **dict.fromkeys(("pp_ocrv5_mobile_det", "pp_ocrv6_small_det"), STAGES),
    },
    "mask-generation": {
        **dict.fromkeys(("edgetam_video", "sam2", "sam2_video"), "Hiera with a pyramid, and a memory of frames"),
        **dict.fromkeys(("sam3_tracker", "sam3_video"), "a vision transformer with a pyramid, and a memory of frames"),
        "sam_hq": "SAM with a second mask head",
    },
    "text-embedding": {
        **dict.fromkeys(
            (
                "mt5",
                "t5",
                "umt5",
            ),
            "T5's encoder alone",
        ),
        **dict.fromkeys(
            (
                "mllama",
                "mobilebert",
                "reformer",
            ),
            "the model without the head that is written down",
        ),
    },
    "ranking": {
        **dict.fromkeys(
            (
                "bart",
                "bigbird_pegasus",
                "mbart",
                "mt5",
                "mvp",
                "plbart",
                "t5",
                "t5gemma",
                "t5gemma2",
                "umt5",
            ),
            "an encoder of words beside the decoder",
        ),
        **dict.fromkeys(
            (
                "canine",
                "funnel",
                "layoutlmv3",
                "lilt",
                "luke",
                "markuplm",
                "mobilebert",
                "modernvbert",
                "perceiver",
                "reformer",
                "ultrabert",
                "ultravbert",
                "xlnet",
            ),
            "a head or a stream of its own",
        ),
        **dict.fromkeys(
            (
                "axk2",
                "eurobert",
                "falcon",
                "flaubert",
                "gemma3",
                "gpt-sw3",
                "gpt2",
                "gpt_bigcode",
                "gptj",
                "jetmoe",
                "opt",
                "phi",
                "qwen3_5",
                "starcoder2",
                "xlm",
                "zamba",
                "zamba2",
            ),
            "a head for classes on layers that other rules read",
        ),
    },
}
# As `architectures_golden.py` ran them.
TOKENS, WINDOW = 80, 32
Verdict = Literal["equal", "near", "refused", "unbuilt"]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One architecture: our count of parameters beside that of the module, and a sentence where they differ."""

    model_type: str
    architecture: str
    verdict: Verdict
    counted: int | None = None
    true: int | None = None
    reason: str = ""

    @property
    def off(self) -> float | None:
        """How far the count is off, as a fraction of the truth."""
        if not self.true or self.counted is None:
            return None
        return self.counted / self.true - 1


def recorded(kind: str) -> list[dict[str, Any]]:
    """The golden rows of a kind."""
    lines = (GOLDEN / f"{kind}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def preset_from(config: dict[str, Any]) -> Preset:
    """The preset that a config file with these values stands for.

    Raises:
        UserError: it is refused.
    """
    try:
        found = parse_config(config)
        if found.undescribed:
            raise UserError(f"the net in {found.undescribed} is not known")
        return msgspec.convert(tables_of_config("config", found), Preset)
    except (Damaged, msgspec.ValidationError) as error:
        raise UserError(str(error)) from None


def checked(row: dict[str, Any]) -> Checked:
    """One architecture's verdict."""
    known = {"model_type": row["type"], "architecture": row["architecture"]}
    if "parameters" not in row:
        return Checked(**known, verdict="unbuilt", reason=row["unbuilt"])
    true = row["parameters"] + row["router_buffers"]
    try:
        preset = preset_from(row["config"])
        ANALYTIC.estimate(preset.workload, card("H100"))
        counted = parameter_count(preset.model)
    except UserError as error:
        return Checked(**known, verdict="refused", true=true, reason=str(error))
    if counted in {true, row["parameters"]}:
        return Checked(**known, verdict="equal", counted=counted, true=true)
    basis = preset.model.basis if isinstance(preset.model, TransformerModel) else "shapes"
    return Checked(**known, verdict="near", counted=counted, true=true, reason=f"{basis}: {counted:,} of {true:,}")


def table(kinds: Iterable[str] = KINDS) -> list[str]:
    """The rows of the page's table."""
    lines = [
        "| transformers 5.23, default configs | architectures | answered | parameters equal |",
        "|---|---:|---:|---:|",
    ]
    for kind in kinds:
        found = [one for one in map(checked, recorded(kind)) if one.verdict != "unbuilt"]
        answered = sum(one.verdict != "refused" for one in found)
        equal = sum(one.verdict == "equal" for one in found)
        lines.append(
            f"| {KINDS[kind]} | {len(found)} | {answered} ({answered / len(found):.1%}) | "
            f"{equal} ({equal / len(found):.1%}) |"
        )
    return lines


def page() -> list[str]:
    """The page of the documentation: the table, and every architecture that is not equal with the reason."""
    out = [
        "# Models that are read",
        "",
        "`vramtui estimate` reads a model's `config.json` and counts its parameters, KV cache and towers; no torch.",
        "Below, every architecture of transformers 5.23 by its default config: *answered* where there is an estimate,",
        "*equal* where the number of parameters is that of the module that transformers builds on the meta device. The",
        "others are read from the keys that most configs share, and every estimate of them says `generic` and how far",
        "off it may be. `python benchmarks/architectures.py --markdown` makes this page.",
        "",
        *table(),
        "",
    ]
    for kind, title in KINDS.items():
        rest = [one for one in map(checked, recorded(kind)) if one.verdict not in {"equal", "unbuilt"}]
        if not rest:
            continue
        out += [
            f"## {title.capitalize()} that are not equal",
            "",
            "| type | what no rule describes | off |",
            "|---|---|---:|",
        ]
        for one in rest:
            off = "refused" if one.off is None else f"{one.off:+.2%}"
            out.append(f"| `{one.model_type}` | {REASONS[kind][one.model_type]} | {off} |")
        out.append("")
    unbuilt = sorted(
        {one.model_type for kind in KINDS for one in map(checked, recorded(kind)) if one.verdict == "unbuilt"}
    )
    named = ", ".join(f"`{name}`" for name in unbuilt)
    return [*out, f"Not counted, because transformers itself does not build them from their default config: {named}."]


def main() -> None:
    """Print it."""
    if "--markdown" in sys.argv:
        sys.stdout.write("\n".join(page()) + "\n")
        return
    out = table()
    if "--rest" in sys.argv:
        for kind in KINDS:
            for one in map(checked, recorded(kind)):
                if one.verdict != "equal":
                    off = "" if one.off is None else f" ({one.off:+.1%})"
                    out.append(f"{kind:10} {one.verdict:8} {one.model_type} ({one.architecture}): {one.reason}{off}")
    sys.stdout.write("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
