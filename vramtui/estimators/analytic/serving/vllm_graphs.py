"""CUDA graphs that vLLM captures: the buffers of split attention, and what the driver keeps of each graph."""

from vramtui.core.base.units import KIB, MIB
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic.sizes.partition import Share

# FlashAttention 3 splits keys and values among so many blocks under full graphs, and a graph holds the fp32 parts of
# the largest batch (vllm/config/attention.py, flash_attn_max_num_splits_for_cuda_graph; v1/attention/backends/
# flash_attn.py). Only Hopper has FlashAttention 3, and that for numbers of 16 bits.
MOST_SPLITS = 32
FLASH_ATTENTION_3, HALF = (9, 0), 2
MOST_CAPTURED = 512
# What the driver keeps of the kernels of one layer in one graph, and what the first capture takes. Fitted, for no
# source says it: the first to Llama 3.1 8B on 1, 2 and 4 pipeline stages (0.91, 0.65, 0.51 GiB on H100s, vLLM 0.19),
# the second to the same runs. Experts launch more kernels, and shared ones have a stream of their own: fitted to
# Mixtral 8x7B and Qwen 3 30B-A3B, and to Qwen 1.5 MoE and DeepSeek V2 Lite.
DENSE_LAYER, ROUTED_LAYER, SHARED_LAYER = 171 * KIB, 220 * KIB, 420 * KIB
FIRST_CAPTURE = 125 * MIB
SOURCE = "the attention's buffers: vLLM 0.19, v1/attention/backends/flash_attn.py; the rest fitted to 31 start-up logs"


def graphs_captured(sequences: int) -> int:
    """Graphs: of whole passes for batches of up to `sequences`, and in pieces for up to twice as many.

    Sizes are 1, 2, 4, by eights to 256, and by sixteens beyond (vllm/config/vllm.py, _set_cudagraph_sizes).
    """
    largest = min(2 * sequences, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
    return sum((size <= largest) + (size <= min(sequences, largest)) for size in sizes)


def graph_bytes(share: Share, sequences: int, itemsize: int, capability: tuple[int, int]) -> int:
    """Bytes of all captured graphs of one rank, which computes in numbers of `itemsize` bytes."""
    layers = share.layers * _layer_bytes(share.model) * graphs_captured(sequences)
    splits = split_bytes(share.model, sequences) if itemsize == HALF and capability == FLASH_ATTENTION_3 else 0
    return layers + FIRST_CAPTURE + splits


def split_bytes(model: TransformerModel, sequences: int) -> int:
    """The fp32 parts of split attention's answers and their sums, of the largest batch that is captured whole."""
    if model.kv_lora_rank is not None:
        return 0
    batch = min(sequences, MOST_CAPTURED)
    return MOST_SPLITS * batch * model.num_attention_heads * (model.head_size + 1) * 4


def _layer_bytes(model: TransformerModel) -> int:
    if model.num_experts is None:
        return DENSE_LAYER
    return SHARED_LAYER if model.shared_size else ROUTED_LAYER
