"""The header of a GGUF file: its metadata and which tensors it holds (llama.cpp, docs of the format, version 2 and 3).

Types of numbers count by what a block of them really takes (llama.cpp, ggml/src/ggml-common.h). Values of tensors are
never read, and long lists of metadata only passed over.
"""

import re
import struct
from collections import Counter
from math import prod
from pathlib import Path

import msgspec

from vramtui.core.base import file_limits as limits
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.models.families.keys import Table
from vramtui.models.named_files import MAGIC
from vramtui.models.readers.bounded import Cursor, DamagedError, open_plain, path_text

KEPT = 4096
_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class GgmlType(msgspec.Struct, frozen=True):
    """`elements` numbers stand together in `size` bytes, their scales included."""

    name: str
    elements: int
    size: int

    @property
    def bits(self) -> float:
        return 8 * self.size / self.elements

    def bytes_of(self, numel: int) -> int:
        return -(-numel // self.elements) * self.size


GGML_TYPES = {
    0: GgmlType("f32", 1, 4), 1: GgmlType("f16", 1, 2), 2: GgmlType("q4_0", 32, 18), 3: GgmlType("q4_1", 32, 20),
    6: GgmlType("q5_0", 32, 22), 7: GgmlType("q5_1", 32, 24), 8: GgmlType("q8_0", 32, 34),
    9: GgmlType("q8_1", 32, 36), 10: GgmlType("q2_k", 256, 84), 11: GgmlType("q3_k", 256, 110),
    12: GgmlType("q4_k", 256, 144), 13: GgmlType("q5_k", 256, 176), 14: GgmlType("q6_k", 256, 210),
    15: GgmlType("q8_k", 256, 292), 16: GgmlType("iq2_xxs", 256, 66), 17: GgmlType("iq2_xs", 256, 74),
    18: GgmlType("iq3_xxs", 256, 98), 19: GgmlType("iq1_s", 256, 50), 20: GgmlType("iq4_nl", 32, 18),
    21: GgmlType("iq3_s", 256, 110), 22: GgmlType("iq2_s", 256, 82), 23: GgmlType("iq4_xs", 256, 136),
    24: GgmlType("i8", 1, 1), 25: GgmlType("i16", 1, 2), 26: GgmlType("i32", 1, 4), 27: GgmlType("i64", 1, 8),
    28: GgmlType("f64", 1, 8), 29: GgmlType("iq1_m", 256, 56), 30: GgmlType("bf16", 1, 2),
    34: GgmlType("tq1_0", 256, 54), 35: GgmlType("tq2_0", 256, 66), 39: GgmlType("mxfp4", 32, 17),
    40: GgmlType("nvfp4", 64, 36), 41: GgmlType("q1_0", 128, 18), 42: GgmlType("q2_0", 64, 18),
}  # fmt: skip


def bits_of_type(name: str) -> float:
    """Bits per weight of a type of ggml, by its name, scales included."""
    return next(kind.bits for kind in GGML_TYPES.values() if kind.name == name)


class Passed(msgspec.Struct, frozen=True):
    """A list that was not kept."""


Value = int | float | bool | str | tuple[int | float | bool, ...] | Passed


class TensorInfo(msgspec.Struct, frozen=True):
    """One tensor; `shape` with the innermost dimension first, as the file has it."""

    name: str
    shape: tuple[int, ...]
    type: GgmlType

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.type.bytes_of(self.numel)


class Gguf(msgspec.Struct, frozen=True):
    metadata: dict[str, Value]
    tensors: tuple[TensorInfo, ...]


def read_gguf(path: Path) -> Gguf:
    """The header of the file at `path`; of all parts, where the model is split into several. Raises UserError if it
    cannot be read, is not a whole GGUF file, or another part is missing.
    """
    first = _read_file(path)
    parts = first.metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts <= 1:
        return first
    match = _PART.search(path.name)
    if match is None or int(match[2]) != parts or parts > limits.MOST_GGUF_KEYS:
        raise UserError(
            f"{path_text(path)} is one of {parts} parts, but not named like one: -00001-of-{parts:05d}.gguf"
        )
    stem = path.name[: match.start()]
    files = [_read_file(path.with_name(f"{stem}-{n:05d}-of-{parts:05d}.gguf")) for n in range(1, parts + 1)]
    return Gguf(files[0].metadata, tuple(tensor for file in files for tensor in file.tensors))


def _read_file(path: Path) -> Gguf:
    file, size = open_plain(path)
    with file:
        try:
            return _Reader(Cursor(file, size), size).read()
        except DamagedError as error:
            raise UserError(f"{path_text(path)} {error}") from None


class _Reader:
    def __init__(self, cursor: Cursor, size: int) -> None:
        self.cursor = cursor
        self.size = size
        self.items = 0

    def read(self) -> Gguf:
        """Everything up to the first tensor's bytes, and whether the last one's are there."""
        if self.cursor.take(4) != MAGIC:
            raise DamagedError("is no GGUF file: it does not begin with GGUF")
        version = self.cursor.number(4)
        if version not in {2, 3}:
            other = "is written for big-endian machines" if version >> 16 else f"has version {version} of the format"
            raise DamagedError(f"{other}; versions 2 and 3 in little-endian are known")
        tensors, keys = self.cursor.number(8), self.cursor.number(8)
        if tensors > limits.MOST_GGUF_TENSORS or keys > limits.MOST_GGUF_KEYS:
            raise DamagedError(f"is damaged: it says it has {tensors:,} tensors and {keys:,} values")
        metadata: dict[str, Value] = {}
        for _ in range(keys):
            name = self._string()
            metadata[name] = self._value(self.cursor.number(4))
        infos, end = [], 0
        for _ in range(tensors):
            name, dimensions = self._string(), self.cursor.number(4)
            if dimensions > limits.MOST_GGUF_DIMENSIONS:
                raise DamagedError(f"is damaged: {printable(name[:80])!r} has {dimensions} dimensions")
            shape = tuple(self.cursor.number(8) for _ in range(dimensions))
            kind = self.cursor.number(4)
            if kind not in GGML_TYPES:
                raise DamagedError(f"holds {printable(name[:80])!r} in type {kind}, which is not known")
            infos.append(TensorInfo(name, shape, GGML_TYPES[kind]))
            end = max(end, self.cursor.number(8) + infos[-1].bytes)
        step = metadata.get("general.alignment", 32)
        step = step if isinstance(step, int) and 0 < step <= KEPT else 32
        end += -(-self.cursor.at // step) * step
        if end > self.size:
            raise DamagedError(f"is cut short: {end - self.size:,} of {end:,} bytes are missing")
        return Gguf(metadata, tuple(infos))

    def _string(self) -> str:
        length = self.cursor.number(8)
        if length > limits.LONGEST_GGUF_STRING:
            self.cursor.skip(length)
            return ""
        return self.cursor.take(length).decode("utf-8", "replace")

    def _value(self, kind: int, depth: int = 0) -> Value:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(depth)
        layout = self._layout(kind)
        value: int | float | bool = struct.unpack(layout, self.cursor.take(struct.calcsize(layout)))[0]
        return value

    @staticmethod
    def _layout(kind: int) -> str:
        if kind not in _NUMBERS:
            raise DamagedError(f"is damaged: a value has type {kind}, which there is not")
        return _NUMBERS[kind]

    def _array(self, depth: int) -> Value:
        if depth >= (limits.GGUF.depth or 0):
            raise DamagedError("is damaged: lists within lists without end")
        kind, length = self.cursor.number(4), self.cursor.number(8)
        self.items += length
        if self.items > (limits.GGUF.count or 0):
            raise DamagedError(f"is damaged: lists of more than {limits.GGUF.count:,} values")
        if kind == _STRING:
            self.cursor.skip_strings(length)
        elif kind == _ARRAY:
            if length > limits.MOST_GGUF_LISTS:
                raise DamagedError(f"is damaged: {length:,} lists in a list")
            for _ in range(length):
                self._array(depth + 1)
        elif length <= KEPT:
            layout = f"<{length}{self._layout(kind)[1:]}"
            return struct.unpack(layout, self.cursor.take(struct.calcsize(layout)))
        else:
            self.cursor.skip(struct.calcsize(self._layout(kind)) * length)
        return Passed()


EMBEDDING = "token_embd.weight"
# Every how many layers one looks back all the way, where llama.cpp's code says it and the file does not.
SLIDING_PATTERNS = {
    "cohere2": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "gptoss": 2, "llama4": 4,
    "olmo2": 4, "smallthinker": 4,
}  # fmt: skip
KNOWN = (
    "deepseek2", "gemma", "gemma2", "gemma3", "gpt2", "gptneox", "granite", "llama", "phi2", "phi3",
    "qwen2", "qwen2moe", "qwen3", "qwen3moe", "smollm3", "starcoder2",
)  # fmt: skip
ACTIVATIONS = {
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "starcoder2"), "gelu_pytorch_tanh"),
    **dict.fromkeys(("gpt2", "phi2"), "gelu_new"),
    "gptneox": "gelu",
}
PATTERNS = {"gemma2": 2, "gemma3": 6}
PARALLEL = {"gptneox", "phi2"}
OUTPUT = "output.weight"
# Keys of `[model]` that lists of tensors and caches replace.
SINGLE = (
    "sliding_window", "sliding_window_pattern", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "n_shared_experts", "shared_expert_intermediate_size", "shared_expert_gate", "first_k_dense_replace", "router_bias",
)  # fmt: skip
# Tables that llama.cpp reads besides the parameters.
BUFFERS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


class GgufHeader:
    def __init__(self, file: Gguf) -> None:
        self.metadata = file.metadata
        self.tensors: dict[str, TensorInfo] = {tensor.name: tensor for tensor in file.tensors}
        kind = file.metadata.get("general.architecture")
        if not isinstance(kind, str) or not kind:
            raise DamagedError("does not say which architecture it holds")
        self.kind = kind

    @property
    def is_known(self) -> bool:
        """Return whether its metadata and tensors say all that its operators are; others give only sizes and caches."""
        return self.kind in KNOWN

    @property
    def parameters(self) -> int:
        return sum(tensor.numel for tensor in self.tensors.values() if tensor.name not in BUFFERS)

    def model(self) -> Table:
        """The `[model]` table; raises DamagedError if a value that is needed is missing or is not a whole number."""
        hidden = self.whole("embedding_length")
        layers = self.whole("block_count")
        if layers > limits.MOST_LAYERS:
            raise DamagedError(f"has a block_count of {layers:,}; {limits.MOST_LAYERS} at most are known")
        embedding = self.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise DamagedError("has no embedding of words, token_embd.weight")
        after = self._there("post_attention_norm.weight") and self._there("ffn_norm.weight")
        second = self._there("ffn_norm.weight", "attn_norm_2.weight")
        plain = "output_norm.bias" in self.tensors
        up = self.tensors.get(f"blk.{layers - 1}.ffn_up.weight")
        doubled = up is not None and len(up.shape) == 2 and up.shape[1] == 2 * self.width()
        table: Table = {
            "kind": "transformer",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": self.heads(),
            "num_key_value_heads": self.optional("attention.head_count_kv"),
            "head_dim": self.optional("attention.key_length"),
            "intermediate_size": self.width(),
            "vocab_size": embedding.shape[1],
            "max_position_embeddings": self.optional("context_length"),
            "hidden_act": ACTIVATIONS.get(self.kind, "silu"),
            "sliding_window": self.optional("attention.sliding_window"),
            "sliding_window_pattern": PATTERNS.get(self.kind),
            "tie_word_embeddings": OUTPUT not in self.tensors,
            "parallel_residual": self.kind in PARALLEL,
            "parameters": self.parameters,
            "norm": "layernorm" if plain else "gemma_rmsnorm" if self.kind.startswith("gemma") else "rmsnorm",
            "norms_per_layer": 4 if after else 2 if second else 1,
            "qk_norm": self._there("attn_q_norm.weight"),
            "fused_qkv": self._there("attn_qkv.weight"),
            "gated_mlp": doubled or self._there("ffn_gate.weight", "ffn_gate_exps.weight"),
            "attention_bias": self._there("attn_q.bias", "attn_qkv.bias"),
            "output_bias": self._there("attn_output.bias"),
            "mlp_bias": self._there("ffn_up.bias"),
            "lm_head_bias": "output.bias" in self.tensors,
            "position": "learned" if "position_embd.weight" in self.tensors else "rope",
        }
        if self.optional("expert_count"):
            table |= {
                "num_experts": self.optional("expert_count"),
                "num_experts_per_tok": self.optional("expert_used_count"),
                "moe_intermediate_size": self.optional("expert_feed_forward_length"),
                "n_shared_experts": self.optional("expert_shared_count"),
                "shared_expert_intermediate_size": self.optional("expert_shared_feed_forward_length"),
                "shared_expert_gate": self._there("ffn_gate_inp_shexp.weight"),
                "first_k_dense_replace": self.optional("leading_dense_block_count") or 0,
                "router_bias": self._there("exp_probs_b.bias"),
            }
        if self.kind == "deepseek2":  # its keys and values are compressed; a file made for decoding so has `_mla` keys
            head = self.optional("attention.key_length_mla") or self.whole("attention.key_length")
            rotary = self.whole("rope.dimension_count")
            table |= {
                "head_dim": None,
                "num_key_value_heads": None,
                "q_lora_rank": self.optional("attention.q_lora_rank"),
                "kv_lora_rank": self.whole("attention.kv_lora_rank"),
                "qk_rope_head_dim": rotary,
                "qk_nope_head_dim": head - rotary,
                "v_head_dim": self.optional("attention.value_length_mla") or self.whole("attention.value_length"),
            }
        if not self.is_known:
            table |= self._lists(layers)
        return {key: value for key, value in table.items() if value is not None}

    def _lists(self, layers: int) -> Table:
        """`basis`, `tensors` and `caches`; what the caches say replaces single keys."""
        window, pattern = self.optional("attention.sliding_window"), f"{self.kind}.attention.sliding_window_pattern"
        slides, every = self.metadata.get(pattern), SLIDING_PATTERNS.get(self.kind)
        if isinstance(slides, int) and not isinstance(slides, bool) and slides > 0:
            every = slides
        cache_counts: Counter[tuple[tuple[str, int], ...]] = Counter()
        for number in range(layers):
            # What one layer keeps: keys and values of each token, a recurrent state in fp32 of each sequence.
            start, cache = f"blk.{number}.", dict[str, int]()
            keys, latent = self._rows(f"{start}attn_k.weight"), self._rows(f"{start}attn_kv_a_mqa.weight")
            if latent:
                cache["per_token"] = latent
            elif keys:
                cache["per_token"] = keys + (self._rows(f"{start}attn_v.weight") or keys)
            elif self._rows(f"{start}attn_qkv.weight") and not self._rows(f"{start}ssm_conv1d.weight"):
                heads = self.optional("attention.head_count") or 1
                size = self.optional("attention.key_length") or (self.optional("embedding_length") or 0) // heads
                sizes = size + (self.optional("attention.value_length") or size)
                cache["per_token"] = (self.optional("attention.head_count_kv") or heads) * sizes
            if f"{start}ssm_conv1d.weight" in self.tensors:
                # A state-space layer's: the last inputs of its convolution, and what it keeps of everything before.
                inner, state = self.optional("ssm.inner_size") or 0, self.optional("ssm.state_size") or 0
                mixed = inner + 2 * (self.optional("ssm.group_count") or 0) * state
                cache["state_fp32"] = max(0, (self.optional("ssm.conv_kernel") or 1) - 1) * mixed + inner * state
            elif f"{start}shortconv.conv.weight" in self.tensors:
                width = self.optional("embedding_length") or 0
                cache["state_fp32"] = max(0, (self.optional("shortconv.l_cache") or 1) - 1) * width
            if isinstance(slides, tuple) and len(slides) == layers:
                is_sliding = bool(slides[number])
            else:
                is_sliding = every is not None and (number + 1) % every != 0
            if window is not None and is_sliding and cache.get("per_token"):
                cache["window"] = window
            if cache:
                cache_counts[tuple(cache.items())] += 1
        counts: Counter[tuple[str, tuple[int, ...], str]] = Counter()
        for tensor in self.tensors.values():
            parts = [part for part in tensor.name.split(".") if part not in {"weight", "bias"} and not part.isdigit()]
            name = "embed_tokens" if tensor.name == EMBEDDING else parts[-1] if parts else tensor.name
            if tensor.shape and 0 not in tensor.shape:
                place = "layers" if tensor.name.startswith("blk.") else "outside"
                counts[name, tuple(reversed(tensor.shape)), place] += 1
        most, kv_heads = self.optional("attention.head_count"), self.optional("attention.head_count_kv")
        return dict.fromkeys(SINGLE) | {
            "basis": "generic",
            "tensors": [
                {"name": name, "shape": list(shape), "count": count, "place": place}
                for (name, shape, place), count in counts.items()
            ],
            "caches": [{"layers": count, **dict(cache)} for cache, count in cache_counts.items()],
            "head_dim": self.optional("attention.key_length"),
            # Heads of keys and values where they share the heads evenly in every layer.
            "num_key_value_heads": kv_heads if kv_heads and most and most % kv_heads == 0 else None,
        }

    def stored(self) -> dict[str, int]:
        """Bytes of the embedding, of the blocks and of the rest, as the file holds them."""
        embedding = blocks = output = 0
        for tensor in self.tensors.values():
            if tensor.name == EMBEDDING:
                embedding += tensor.bytes
            elif tensor.name.startswith("blk."):
                blocks += tensor.bytes
            else:
                output += tensor.bytes
        return {"embedding": embedding, "blocks": blocks, "output": output}

    def main_type(self) -> str:
        numbers: dict[str, int] = {}
        for tensor in self.tensors.values():
            numbers[tensor.type.name] = numbers.get(tensor.type.name, 0) + tensor.numel
        return max(numbers, key=numbers.__getitem__, default="f16")

    def optional(self, key: str) -> int | None:
        """A whole number of this architecture's, or None; of a list with one entry per layer the largest."""
        value = self.metadata.get(f"{self.kind}.{key}")
        if value is None or isinstance(value, Passed):
            return None
        if isinstance(value, tuple):
            value = max(value, default=0)
        if isinstance(value, bool) or not isinstance(value, int):
            raise DamagedError(f"has {self.kind}.{key} = {printable(repr(value))[:40]}; a whole number is needed")
        return value or None

    def whole(self, key: str) -> int:
        value = self.optional(key)
        if value is None:
            raise DamagedError(f"has no {self.kind}.{key}, which its architecture needs")
        return value

    def heads(self) -> int:
        """Heads of a layer that has the most; a model without attention has one for form's sake."""
        return self.whole("attention.head_count") if self.is_known else self.optional("attention.head_count") or 1

    def width(self) -> int:
        """Width of an MLP: the experts' where every layer has experts."""
        if self.is_known:
            return self.whole("feed_forward_length")
        width = self.optional("feed_forward_length") or self.optional("expert_feed_forward_length")
        return width or 2 * self.whole("embedding_length")

    def _there(self, *names: str) -> bool:
        """Return whether the last layer, which has experts if any has, holds any of these tensors."""
        last = self.whole("block_count") - 1
        return any(f"blk.{last}.{name}" in self.tensors for name in names)

    def _rows(self, name: str) -> int:
        """Rows of a weight; a GGUF has the inner dimension first. 0 if there is none."""
        tensor = self.tensors.get(name)
        return tensor.shape[1] if tensor is not None and len(tensor.shape) == 2 else 0
