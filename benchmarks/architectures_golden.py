"""Every language architecture of the installed transformers, built on the meta device: its config as transformers
writes it, its parameters, and what its cache holds after a forward pass. Printed as JSON, one architecture a line.

    python benchmarks/architectures_golden.py causal >tests/golden/architectures/causal.jsonl
    python benchmarks/architectures_golden.py public <configs.jsonl >tests/golden/architectures/public.jsonl

The second takes configs as public models have them, a line {"name": ..., "config": ...} each.

Nothing is downloaded and no memory is taken: tensors on the meta device have shapes alone. Gemma 3n wants timm and
torchvision installed; where they are missing its row is one of those that are not built.
"""

import gc
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}

import torch
import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

KINDS = {
    "causal": "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "image-text": "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "masked": "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
    "audio-text": "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "speech": "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "ctc": "MODEL_FOR_CTC_MAPPING_NAMES",
    "text-to-speech": "MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES",
    "image-classes": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "image-models": "MODEL_FOR_IMAGE_MAPPING_NAMES",
    "segmentation": "MODEL_FOR_SEMANTIC_SEGMENTATION_MAPPING_NAMES",
    "masks": "MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES",
    "detection": "MODEL_FOR_OBJECT_DETECTION_MAPPING_NAMES",
    "depth": "MODEL_FOR_DEPTH_ESTIMATION_MAPPING_NAMES",
    "zero-shot-images": "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING_NAMES",
    "zero-shot-detection": "MODEL_FOR_ZERO_SHOT_OBJECT_DETECTION_MAPPING_NAMES",
    "mask-generation": "MODEL_FOR_MASK_GENERATION_MAPPING_NAMES",
    "translation": "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "text-embedding": "MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES",
    "ranking": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
}
# Of routers that balance their load without a loss; checkpoints hold them and model cards count them, though they are
# buffers in the code.
ROUTER_BUFFERS = ("correction_bias", "expert_bias", "layer_scalar")
TOKENS, WINDOW, SECONDS = 80, 32, 90
# Where models of several parts have the one that reads words.
WORDS = ("language_model", "text_decoder", "decoder", "text_model")


def architectures(kind: str) -> Iterator[tuple[str, str]]:
    """(model_type, architecture) of every entry."""
    seen = getattr(modeling_auto, KINDS["image-text"]) if kind == "audio-text" else {}
    for model_type, name in getattr(modeling_auto, KINDS[kind]).items():
        if model_type in seen:
            continue
        yield model_type, name if isinstance(name, str) else name[0]


def described(model_type: str, architecture: str, *, cached: bool) -> dict[str, Any]:
    """One line of the golden file."""
    row: dict[str, Any] = {"type": model_type, "architecture": architecture}
    config = CONFIG_MAPPING[model_type]()
    built = getattr(transformers, architecture)
    wanted = getattr(built, "config_class", None)
    if wanted is not None and not isinstance(config, wanted) and hasattr(config, "get_text_config"):
        config = config.get_text_config()
    config.architectures = [architecture]
    row["config"] = json.loads(config.to_json_string(use_diff=True))
    row |= counted(built, config)
    if cached and "parameters" in row:
        row |= cache_of(built, config)
    return row


def published(line: dict[str, Any]) -> dict[str, Any]:
    """One line of the golden file of public models."""
    values = line["config"]
    config = CONFIG_MAPPING[values["model_type"]].from_dict(json.loads(json.dumps(values)))
    return line | counted(getattr(transformers, values["architectures"][0]), config)


def counted(built: Any, config: Any) -> dict[str, Any]:  # noqa: ANN401 - a class and a config of transformers
    """Its parameters, tied ones once, and its routers' buffers."""
    with torch.device("meta"):
        model = built(config)
    model.tie_weights()
    buffers = sum(tensor.numel() for name, tensor in model.named_buffers() if name.endswith(ROUTER_BUFFERS))
    return {"parameters": sum(tensor.numel() for tensor in model.parameters()), "router_buffers": buffers}


def cache_of(built: Any, config: Any) -> dict[str, Any]:  # noqa: ANN401 - as in counted
    """Bytes of the cache that a forward pass over TOKENS tokens leaves, in bf16, windows cut to WINDOW tokens."""
    for part in {id(part): part for part in (config, config.get_text_config())}.values():
        for name in ("sliding_window", "attention_chunk_size"):
            if isinstance(getattr(part, name, None), int):
                setattr(part, name, WINDOW)
    if hasattr(config, "is_decoder"):
        config.is_decoder = True
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            model = built(config).eval()
        torch.set_default_dtype(torch.float32)
        model.set_experts_implementation("batched_mm")
        with torch.no_grad(), _read_as_zero():
            answer = _answer(model)
    except Exception as error:  # noqa: BLE001 - whatever a model refuses on the meta device
        return {"cache_error": f"{type(error).__name__}: {error}".partition("\n")[0][:120]}
    finally:
        torch.set_default_dtype(torch.float32)
    kept = getattr(answer, "past_key_values", None) or getattr(answer, "cache_params", None)
    sizes = {id(tensor): tensor.numel() * tensor.element_size() for tensor in _tensors(kept, set()) if tensor.dim()}
    return {"cache_bytes": sum(sizes.values())} if sizes else {}


def _answer(model: Any) -> Any:  # noqa: ANN401 - a module and its output
    """What it answers to TOKENS words; where the whole of it wants an image as well, its part that reads words."""
    given = {"input_ids": torch.zeros(1, TOKENS, dtype=torch.long, device="meta"), "use_cache": True}
    try:
        return model(**given)
    except (TypeError, ValueError) as error:
        inner = getattr(model, "model", None)
        parts = [getattr(base, name, None) for name in WORDS for base in (model, inner)]
        words = next((part for part in parts if isinstance(part, torch.nn.Module)), None)
        if words is None:
            raise
        try:
            return words(**given)
        except (TypeError, ValueError):
            raise error from None


@contextmanager
def _read_as_zero() -> Iterator[None]:
    """Values that a model reads back from the meta device, which has none, are zeros and False."""
    tensor: Any = torch.Tensor
    read, truth = tensor.item, tensor.__bool__
    tensor.item = lambda self: 0 if self.is_meta else read(self)
    tensor.__bool__ = lambda self: not self.is_meta and truth(self)
    try:
        yield
    finally:
        tensor.item, tensor.__bool__ = read, truth


def _tensors(value: Any, seen: set[int]) -> Iterator[Any]:  # noqa: ANN401 - whatever a cache holds
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part, seen)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()), seen)
    elif hasattr(value, "__dict__") and id(value) not in seen:
        seen.add(id(value))
        yield from _tensors([part for key, part in vars(value).items() if key != "config"], seen)


def main() -> None:
    """Print them all."""
    kind = sys.argv[1] if len(sys.argv) > 1 else "causal"
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("took too long")))
    if kind == "public":
        for line in sys.stdin:
            sys.stdout.write(json.dumps(published(json.loads(line)), sort_keys=True) + "\n")
        return
    for model_type, architecture in architectures(kind):
        signal.alarm(SECONDS)
        try:
            row = described(model_type, architecture, cached=kind in {"causal", "image-text"})
        except Exception as error:  # noqa: BLE001 - named in the table with its reason
            reason = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:160]
            row = {"type": model_type, "architecture": architecture, "unbuilt": reason}
        signal.alarm(0)
        sys.stdout.write(json.dumps(row, sort_keys=True) + "\n")
        sys.stdout.flush()
        gc.collect()


if __name__ == "__main__":
    main()
