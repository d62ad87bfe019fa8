"""The header of a GGUF file as the `[model]` table of a preset: sizes from its metadata, the rest from its tensors.

Of an architecture that is not described here: every tensor, and each layer's cache by its tensors' shapes, as llama.cpp
has them: src/llama-kv-cache.cpp, and src/llama-hparams.cpp for windows (`set_swa_pattern` in src/llama-model.cpp) and
recurrent states (`n_embd_r` and `n_embd_s`).
"""

from collections import Counter

from vramtui.core.base.file_limits import MOST_LAYERS
from vramtui.core.base.text import printable
from vramtui.models.families.keys import Table
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.readers.gguf import Gguf, Passed, TensorInfo

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
# Tables that llama.cpp reads beside the parameters.
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
        """The `[model]` table.

        Raises:
            DamagedError: a value that is needed is missing or is not a whole number.
        """
        hidden = self.whole("embedding_length")
        layers = self.whole("block_count")
        if layers > MOST_LAYERS:
            raise DamagedError(f"has a block_count of {layers:,}; {MOST_LAYERS} at most are known")
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
        """A whole number that has to be there."""
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
