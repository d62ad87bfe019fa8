import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.readers.gguf import GGML_TYPES
from vramtui.presets.model_presets import preset_of

HIDDEN, LAYERS, HEADS, KV, FFN, VOCAB = 64, 2, 4, 2, 128, 256
F32, Q4_K, Q6_K = 0, 12, 14


def config() -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": KV, "intermediate_size": FFN, "vocab_size": VOCAB,
    }  # fmt: skip


def llama_shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCAB, HIDDEN)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        narrow = HIDDEN * KV // HEADS
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (HIDDEN, HIDDEN),
            f"{at}.self_attn.k_proj.weight": (narrow, HIDDEN),
            f"{at}.self_attn.v_proj.weight": (narrow, HIDDEN),
            f"{at}.self_attn.o_proj.weight": (HIDDEN, HIDDEN),
            f"{at}.mlp.gate_proj.weight": (FFN, HIDDEN),
            f"{at}.mlp.up_proj.weight": (FFN, HIDDEN),
            f"{at}.mlp.down_proj.weight": (HIDDEN, FFN),
            f"{at}.input_layernorm.weight": (HIDDEN,),
            f"{at}.post_attention_layernorm.weight": (HIDDEN,),
        }
    return shapes | {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}


def numel(shape: tuple[int, ...]) -> int:
    return math.prod(shape)


PARAMETERS = sum(map(numel, llama_shapes().values()))


def safetensors(shapes: dict[str, tuple[int, ...]], dtype: str = "BF16", width: int = 2) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + width * numel(shape)]}
        at += width * numel(shape)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def write_model(folder: Path, content: bytes) -> Path:
    (folder / "config.json").write_text(json.dumps(config()))
    path = folder / "model.safetensors"
    path.write_bytes(content)
    return path


def test_safetensors_beside_their_config_or_alone(tmp_path: Path) -> None:
    path = write_model(tmp_path, safetensors(llama_shapes()))
    for given_path in (path, tmp_path, tmp_path / "config.json"):
        preset = preset_of(given_path)
        assert isinstance(preset.model, TransformerModel)
        assert preset.model.parameters == PARAMETERS
        assert getattr(preset.run, "precision", None) == "bf16"
    (tmp_path / "config.json").unlink()
    preset = preset_of(path)
    assert preset.notes.startswith("Generic")
    assert parameter_count(preset.model) == sum(math.prod(shape) for shape in llama_shapes().values())


def test_several_files_and_their_index(tmp_path: Path) -> None:
    shapes = llama_shapes()
    names = list(shapes)
    (tmp_path / "config.json").write_text(json.dumps(config()))
    halves = {"model-1-of-2.safetensors": names[:5], "model-2-of-2.safetensors": names[5:]}
    for file, part in halves.items():
        (tmp_path / file).write_bytes(safetensors({name: shapes[name] for name in part}))
    index = {"weight_map": {name: file for file, part in halves.items() for name in part}}
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps(index))
    model = preset_of(path).model
    assert isinstance(model, TransformerModel)
    assert model.parameters == PARAMETERS
    (tmp_path / "model-2-of-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-2-of-2\.safetensors"):
        preset_of(path)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(metadata: dict[str, str | int], tensors: dict[str, tuple[tuple[int, ...], int]]) -> bytes:
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        whole = struct.pack("<I", 4) + struct.pack("<I", value) if isinstance(value, int) else b""
        out += text(key) + (whole or struct.pack("<I", 8) + text(str(value)))
    at = 0
    for name, (shape, kind) in tensors.items():
        out += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", size) for size in shape)
        out += struct.pack("<IQ", kind, at)
        count = numel(shape)
        at += -(-{F32: 4 * count, Q4_K: count * 144 // 256, Q6_K: count * 210 // 256}[kind] // 32) * 32
    return out + bytes(-len(out) % 32) + bytes(at)


def gguf_llama() -> bytes:
    metadata: dict[str, str | int] = {
        "general.architecture": "llama",
        "llama.embedding_length": 256,
        "llama.block_count": 1,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS,
        "llama.feed_forward_length": 512,
        "llama.context_length": 2048,
    }
    square = ((256, 256), Q4_K)
    names = {f"blk.0.attn_{part}.weight": square for part in ("q", "k", "v", "output")}
    tensors = {
        "token_embd.weight": ((256, VOCAB), Q4_K),
        **names,
        "blk.0.ffn_gate.weight": ((256, 512), Q4_K),
        "blk.0.ffn_up.weight": ((256, 512), Q4_K),
        "blk.0.ffn_down.weight": ((512, 256), Q6_K),
        "blk.0.attn_norm.weight": ((256,), F32),
        "blk.0.ffn_norm.weight": ((256,), F32),
        "output_norm.weight": ((256,), F32),
        "output.weight": ((256, VOCAB), Q6_K),
    }
    return gguf(metadata, tensors)


def test_a_gguf_file_tells_its_shapes_and_a_damaged_one_is_quoted_on_one_line(tmp_path: Path) -> None:
    path = tmp_path / "tiny-q4_k_m.gguf"
    path.write_bytes(gguf_llama())
    preset = preset_of(path)
    model, run = preset.model, preset.run
    assert isinstance(model, TransformerModel)
    assert (model.hidden_size, model.vocab_size, model.max_position_embeddings) == (256, VOCAB, 2048)
    assert not model.tie_word_embeddings
    assert isinstance(run, ServeRun)
    assert run.engine == "llama.cpp"
    # 4.5 and 6.5625 bits a weight, and the norms in fp32.
    assert run.stored.embedding == 256 * VOCAB * 144 // 256
    assert run.stored.blocks == (4 * 256 * 256 + 2 * 256 * 512) * 144 // 256 + 256 * 512 * 210 // 256 + 2 * 256 * 4
    assert run.stored.output == 256 * VOCAB * 210 // 256 + 256 * 4
    path = tmp_path / "broken.gguf"
    path.write_bytes(gguf({"general.architecture": "l\nama", "l\nama.block_count": 1}, {}))
    with pytest.raises(UserError) as told:
        preset_of(path)
    assert str(told.value).isprintable()
    assert "ama.embedding_length, which its architecture needs" in str(told.value)


def test_a_gguf_of_an_architecture_that_is_not_described(tmp_path: Path) -> None:
    metadata: dict[str, str | int] = {
        "general.architecture": "gpt-oss",
        "gpt-oss.embedding_length": 256,
        "gpt-oss.block_count": 5,
        "gpt-oss.attention.head_count": 8,
        "gpt-oss.attention.head_count_kv": 2,
        "gpt-oss.attention.key_length": 32,
        "gpt-oss.attention.sliding_window": 128,
        "gpt-oss.expert_feed_forward_length": 256,
        "gpt-oss.expert_count": 4,
        "gpt-oss.context_length": 4096,
        "gpt-oss.ssm.conv_kernel": 4,
        "gpt-oss.ssm.inner_size": 512,
        "gpt-oss.ssm.group_count": 1,
        "gpt-oss.ssm.state_size": 16,
    }
    layer = {"attn_q": (256, 256), "attn_k": (256, 64), "attn_v": (256, 64), "ffn_up_exps": (256, 256, 4)}
    tensors = {f"blk.{n}.{name}.weight": (shape, Q4_K) for n in range(4) for name, shape in layer.items()}
    tensors["blk.4.ssm_conv1d.weight"] = ((4, 544), F32)
    path = tmp_path / "any-name.gguf"
    path.write_bytes(gguf(metadata, {"token_embd.weight": ((256, VOCAB), Q4_K), **tensors}))
    preset = preset_of(path)
    assert preset.notes.startswith("Generic: gpt-oss, read from a GGUF header")
    assert isinstance(preset.model, TransformerModel)
    assert preset.model.basis == "generic"
    assert parameter_count(preset.model) == 256 * VOCAB + 4 * (256 * (256 + 64 + 64) + 256 * 256 * 4) + 4 * 544
    # Every second layer slides over 128 tokens; keys and values of 2 heads of 32 numbers each. The last keeps a state.
    kept = {(kind.layers, kind.per_token, kind.window, kind.state_fp32) for kind in preset.model.caches}
    state = 3 * (512 + 2 * 16) + 512 * 16
    assert kept == {(2, 128, 128, 0), (2, 128, None, 0), (1, 0, None, state)}
    estimate = ANALYTIC.estimate(preset.workload, card("H100"))
    stored = preset.run.stored if isinstance(preset.run, ServeRun) else None
    # No output layer is in the file: llama.cpp puts the embedding on the card as one.
    weights = stored.blocks + stored.output + stored.embedding
    assert next(part.bytes for part in estimate.parts if part.name == "weights") == weights
    # llama.cpp keeps a window for each of four sequences and a micro-batch of 512 tokens, in steps of 256.
    cache = 2 * 1024 * 128 * 2 + 2 * 4096 * 128 * 2 + 4 * 4 * state
    assert next(part.bytes for part in estimate.parts if part.name == "kv cache") == cache


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf"])
def test_a_file_cut_anywhere_is_one_sentence(name: str, tmp_path: Path) -> None:
    whole = gguf_llama() if name.endswith("gguf") else safetensors(llama_shapes())
    path = write_model(tmp_path, b"") if name.endswith("safetensors") else tmp_path / name
    for length in (*range(0, 200, 3), *range(200, len(whole), max(1, len(whole) // 60))):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=name) as caught:
            preset_of(path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("content", "said"), [
    (struct.pack("<Q", 1 << 62), "model.safetensors"),
    (struct.pack("<Q", 2) + b"{}", "model.safetensors"),
    (struct.pack("<Q", 3) + b"[1]", "model.safetensors"),
    (b"\x80\x04\x95 a pickle", "model.safetensors"),
])  # fmt: skip
def test_headers_that_lie_are_refused(content: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        preset_of(write_model(tmp_path, content))


# GGML_QUANT_SIZES of the gguf package (0.19.0): numbers and bytes of a block, by the type's number.
GGUF_SIZES = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66), 17: (256, 74),
    18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2),
    26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66), 39: (32, 17),
    40: (64, 36), 41: (128, 18),
    42: (64, 18),  # younger than the package: block_q2_0 of ggml-common.h, one fp16 scale and two bits of each number
}  # fmt: skip


def test_every_type_of_gguf_has_the_size_that_the_gguf_package_says() -> None:
    """But for q8_1, which no file holds: ggml-common.h has two fp16 numbers in it, the package counts two of fp32."""
    ours = {number: (kind.elements, kind.size) for number, kind in GGML_TYPES.items()}
    assert {number: size for number, size in ours.items() if size != GGUF_SIZES[number]} == {9: (32, 36)}
    assert set(ours) == set(GGUF_SIZES)
