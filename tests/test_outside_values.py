"""Each reader against each of its fields: whatever stands there, it is a sentence or an answer, in bounded time.

The cases are made from the schemas, so that a new field is tried without anybody's doing. What was found once stays in
`fixtures/outside_values.jsonl`.
"""

import json
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from tests.app import scenes
from tests.outside_values import ABSENT, VALUES, Key, bounds_of, changed, every_field, keys_of
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.observation.readings import encode_sample
from vramtui.core.schema.preset import Preset
from vramtui.estimators.methods import estimates_by
from vramtui.models.readers.bounded import Damaged
from vramtui.models.readers.config_json import parse_config
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import checked_preset
from vramtui.records.recording.decoder import RecordingDecoder

PROCESSOR = 10.0  # seconds of one case: five times what a person waits for on a machine of their own
MEMORY = 300 << 20
CORPUS = Path(__file__).parent / "fixtures" / "outside_values.jsonl"
SHAPES = (
    "llama-3.2-1b-full", "llama-3.1-8b-serve", "mixtral-8x7b-qlora", "deepseek-v2-lite-lora", "gpt2-124m",
    "bert-base-mlm", "bart-large-train", "resnet-18-train", "lstm-language-model", "flux-dev-pipeline",
    "llama-3.1-70b-fsdp",
)  # fmt: skip
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32, "intermediate_size": 512, "vocab_size": 1000,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "attention_bias": False, "hidden_act": "silu", "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False},
    "auto_map": {"AutoModel": "modeling.Model"},
}  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mixtral": LLAMA
    | {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4}
    | {"num_experts_per_tok": 2, "sliding_window": 128},
    "gemma3": LLAMA
    | {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "sliding_window": 64}
    | {"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 32},
    "unknown": LLAMA | {"architectures": ["OursForCausalLM"], "model_type": "ours", "num_experts": 4, "v_head_dim": 32},
    "bert": {
        "architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 64, "num_hidden_layers": 2,
        "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000, "type_vocab_size": 2,
        "max_position_embeddings": 64, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128,
        "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "vocab_size": 1000, "dropout_rate": 0.1,
        "feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 32, "is_encoder_decoder": True,
    },
}  # fmt: skip


class TooLongError(Exception):
    """A case took more of the processor than it may."""


@contextmanager
def bounded_case() -> Iterator[None]:
    """Raise in the middle of whatever takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise TooLongError

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, PROCESSOR)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def estimate_preset(tables: dict[str, Any]) -> None:
    """What `vramtui estimate` does with a preset's tables."""
    preset = checked_preset("x.toml", tables)
    estimates_by(None, preset.workload, card("H100"))


def read_config(values: dict[str, Any]) -> None:
    """What is done with somebody's config.json."""
    config = parse_config(values)
    run = {"kind": "infer", "sequence_length": 64, "precision": config.precision or "bf16"}
    estimate_preset({"name": "x", "model": dict(config.model), "run": run})


def read_sample(document: dict[str, Any]) -> None:
    """What is done with a line of a recording, a feed or another host."""
    line = json.dumps(document).encode()
    sample = RecordingDecoder().take(line)
    if sample is not None:
        texts = [gpu.name for gpu in sample.gpus] + [row.command or "" for gpu in sample.gpus for row in gpu.processes]
        assert max(map(len, texts), default=0) <= 1 << 16
        assert len(sample.problems) <= 300
        assert all((gpu.memory.used or 0) >= 0 for gpu in sample.gpus)
        assert all((row.used_memory or 0) >= 0 for gpu in sample.gpus for row in gpu.processes)


READERS: dict[str, tuple[Callable[[dict[str, Any]], None], tuple[type[Exception], ...]]] = {
    "preset": (estimate_preset, (UserError,)),
    "config": (read_config, (UserError, Damaged)),
    "sample": (read_sample, (UserError, msgspec.DecodeError)),
}


def document(reader: str, base: str) -> dict[str, Any]:
    """What the reader takes, right in every key."""
    if reader == "preset":
        found = PresetLibrary().find(base)
        assert found is not None
        tables = json.loads(msgspec.json.encode(found.preset))
        return every_field(
            {name: tables[name] for name in ("name", "model", "run", "parallel") if tables[name]}, Preset
        )
    if reader == "config":
        return CONFIGS[base]
    return dict(msgspec.json.decode(encode_sample(scenes.usual())))


def failures(reader: str, base: str, keys: list[Key], values: Callable[[Key], tuple[object, ...]]) -> list[str]:
    """The cases in which it was neither a sentence nor an answer."""
    read, sentences = READERS[reader]
    right, found = document(reader, base), []
    for key in keys:
        for value in values(key):
            failure = _failure(read, changed(right, key, value), sentences)
            if failure:
                found.append(f"{reader} {base} {key} = {'nothing' if value is ABSENT else repr(value)[:40]}: {failure}")
    return found


def _failure(
    read: Callable[[dict[str, Any]], None], case: dict[str, Any], sentences: tuple[type[Exception], ...]
) -> str:
    try:
        with bounded_case():
            read(case)
    except sentences:
        return ""
    except Exception as error:  # noqa: BLE001 - any other is what is looked for
        return f"{type(error).__name__}: {str(error)[:100]}"
    return ""


def _only(value: object, key: Key) -> tuple[object, ...]:
    del key
    return (value,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reader", "base"),
    [
        *(("preset", base) for base in SHAPES),
        *(("config", base) for base in CONFIGS),
        ("sample", "usual"),
    ],
)
def test_each_field_of_each_reader(reader: str, base: str) -> None:
    right = document(reader, base)
    keys = list(keys_of(right))

    def values(key: Key) -> tuple[object, ...]:
        bounds = bounds_of(key, Preset, right) if reader == "preset" else ()
        return (*VALUES, *bounds, *(bound + 1 for bound in bounds))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert failures(reader, base, keys, values) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY >> 10


def test_what_was_found_stays_found() -> None:
    for line in CORPUS.read_text().splitlines():
        case = json.loads(line)
        key: Key = tuple(case["key"])
        assert failures(case["reader"], case["base"], [key], partial(_only, case["value"])) == []


def test_there_are_enough_cases() -> None:
    count = 0
    for reader, base in [
        *(("preset", base) for base in SHAPES),
        *(("config", base) for base in CONFIGS),
        ("sample", ""),
    ]:
        count += len(VALUES) * len(list(keys_of(document(reader, base))))
    assert count >= 5000
