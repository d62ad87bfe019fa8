"""Peak memory of vLLM's profiling run; each part by the code of vLLM 0.19 that allocates it."""

import msgspec

from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.kinds import MlaModule
from vramtui.models.specs.decoder import attention_of

# fp32 copies of the logits at once (v1/sample/sampler.py, v1/sample/ops/topk_topp_sampler.py): the logits that are
# sampled from, their probabilities, and the exponential noise that these are divided by. The logits as computed live
# on beside them (v1/worker/gpu_model_runner.py, _dummy_sampler_run).
# V0 sorted them all: logits in fp32 as given and in the end, sorted with 64-bit places and those of the way back, two
# sums and two masks (model_executor/layers/sampler.py, _apply_top_k_top_p, 0.6.4): with 16-bit logits 40 bytes.
FP32_COPIES = 3
SORTED_BYTES = 38
# Tensors of the residual stream alive at once while the MLP works: what attention gave, the residual that came in (the
# caller of a compiled piece holds both), and the residual that goes on.
STREAMS = 3
# Residual and hidden states that a pipeline stage receives or hands on, kept for good
# (v1/worker/gpu_model_runner.py, intermediate_tensors).
HANDED_ON = 2
# Inductor times its kernels the first time that they run, and clears the L2 cache with a buffer of its size between
# runs (torch/_inductor/runtime/benchmarking.py, InductorBenchmarker). MiB of L2 by capability, NVIDIA's whitepapers;
# of cards not listed the smallest.
L2_CACHE = {(8, 0): 40, (8, 6): 6, (8, 9): 72, (9, 0): 50, (10, 0): 126, (12, 0): 96}


class ProfiledPass(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled pass: its tokens, and the sequences that are sampled for.

    Attributes:
        vocabulary: words of the whole model, whose logits every tensor rank gathers.
        tuned: bytes that Inductor holds while it times kernels; 0 in eager mode.
        keeps_workspace: experts work in buffers that are kept.
        old_experts: experts work in buffers of their call (fused_moe.py, intermediate_cache1 to 3, before 0.12).
        sorts: the sampler sorts all logits, as V0's does.
    """

    tokens: int
    sequences: int
    itemsize: int
    vocabulary: int
    multiprocessors: int
    tuned: int = 0
    keeps_workspace: bool = True
    old_experts: bool = False
    sorts: bool = False


class Profiled(msgspec.Struct, frozen=True):
    bytes: int
    formula: str


def profiled_batch(share: Share, run: ProfiledPass) -> Profiled:
    """The fullest moment of one pass and of sampling after it (v1/worker/gpu_model_runner.py, profile_run)."""
    model, wide = share.model, rounded(run.tokens * share.model.hidden_size * run.itemsize)
    twice, stream = 2 if model.gated_mlp else 1, f"{STREAMS} x {model.hidden_size} stream"
    resident = HANDED_ON * wide if share.stages > 1 else 0
    if model.num_experts is not None and share.stop > model.first_k_dense_replace and run.keeps_workspace:
        # The two buffers in which experts work, kept from the first pass on and shared by all layers:
        # vllm/model_executor/layers/fused_moe/fused_moe.py, TritonExperts.workspace_shapes, and v1/worker/workspace.py.
        # In mxfp4 each call makes its own (gpt_oss_triton_kernels_moe.py, triton_kernel_moe_forward).
        rows, inner = run.tokens * (model.num_experts_per_tok or 1), model.expert_size
        halves = max(inner, model.hidden_size), max(twice * inner, model.hidden_size)
        resident += sum(rounded(rows * width * run.itemsize) for width in halves)
    # Numbers for each token beside the residual stream while a layer attends, and while its MLP works, or the shared
    # expert beside the routed ones' workspace.
    module = attention_of(model)
    heads = module.heads
    if isinstance(module, MlaModule):
        attending = heads * (2 * module.key_dim + module.plain_dim + 2 * module.value_dim)
        attention = f"{stream} + {heads} heads x {attending // heads} unpacked from the latent"
    else:
        queries, keys = heads * module.head_dim, 2 * module.kv_heads * module.head_dim
        attending = 2 * queries + keys
        attention = f"{stream} + {queries + keys} queries, keys, values + {queries} answers"
    dense = model.num_experts is None or share.first < model.first_k_dense_replace
    size, what = (model.ffn_size, "MLP") if dense else (model.shared_size, "shared expert")
    mlp, words = (twice + 1) * size, f"{stream} + {twice + 1} x {size} {what}"
    if run.old_experts and model.num_experts is not None:
        chosen = model.num_experts_per_tok or 1
        mlp = max(mlp, chosen * (3 * model.expert_size + model.hidden_size))
        words = f"{stream} + {chosen} experts x (3 x {model.expert_size} + {model.hidden_size})"
    moments = [
        Profiled(
            resident + STREAMS * wide + rounded(run.tokens * numbers * run.itemsize) + run.tuned,
            f"{run.tokens:,} tokens x {run.itemsize} B x ({words})",
        )
        for numbers, words in ((attending, attention), (mlp, words))
    ]
    if share.ends:
        # Sampling for as many sequences as run together, while the hidden states of all tokens are held. The top-k
        # kernel keeps a row of logits for each multiprocessor (v1/sample/ops/topk_topp_triton.py, _BUFFER_CACHE); the
        # last hidden states are held twice, as they came and as the random ones that stand in for them. fp32 logits are
        # not copied.
        rows, vocabulary = min(run.sequences, run.tokens), run.vocabulary
        copies = (run.itemsize if run.itemsize != 4 else 0) + (SORTED_BYTES if run.sorts else FP32_COPIES * 4)
        held_twice = 2 * rounded(rows * model.hidden_size * run.itemsize)
        scratch = rounded(rows * vocabulary * copies) + rounded(min(run.multiprocessors, rows) * vocabulary * 4)
        words = f"sampling for {rows:,} sequences: {vocabulary:,} logits x {copies} B, beside {run.tokens:,} tokens x "
        words += f"{model.hidden_size} x {run.itemsize} B"
        moments.append(Profiled(resident + wide + held_twice + scratch, words))
    fullest = max(moments, key=lambda moment: moment.bytes)
    if not resident:
        return fullest
    return Profiled(fullest.bytes, f"{fullest.formula}; {resident:,} B that experts or the next stage keep")
