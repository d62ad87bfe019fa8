"""TensorRT-LLM (PyTorch backend): keys and values in a fraction of what weights and a profiled batch leave free.

Source: TensorRT-LLM 1.0, tensorrt_llm/_torch/pyexecutor/_util.py, KvCacheCreator: a batch of max_num_tokens is run
once, and of the card less the most that it took `free_gpu_memory_fraction` goes to keys and values.
"""

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving.parts import UNMEASURED, TooLargeError, context_length, served
from vramtui.estimators.analytic.serving.pool import PooledRank, pool_of, refuse_others
from vramtui.estimators.analytic.serving.vllm_profiling import ProfiledPass, profiled_batch
from vramtui.estimators.analytic.serving.weights import weight_parts, weights_of
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes
from vramtui.estimators.analytic.sizes.partition import Share, telling_shares
from vramtui.estimators.analytic.sizes.precision import cache_bits, inference_recipe
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.models.specs.decoder import cache_source

SOURCE = "TensorRT-LLM 1.0, tensorrt_llm/_torch/pyexecutor/_util.py, KvCacheCreator"
# Tokens of a pass where nothing is said, and of a block (llmapi/llm_args.py, 1.0).
TOKENS, BLOCK = 8192, 32
# Where the run says no free_gpu_memory_fraction (KvCacheConfig).
FRACTION = 0.9


class TrtServer:
    """One TensorRT-LLM server; the rank with the least room decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        refuse_others(run, "TensorRT-LLM")
        self.run, self.device, self.parallel = run, device, parallel
        self.ranks = parallel.ranks // parallel.data
        self.length = context_length(model, run)
        self.tokens = run.max_num_batched_tokens or TOKENS
        self.fraction = run.free_gpu_memory_fraction or FRACTION
        self.workspace = workspace_bytes(device.capability)
        ranks = [self._rank(share, model.vocab_size) for share in telling_shares(model, parallel)]
        self.rank = min(ranks, key=lambda rank: rank.pool.tokens)

    def _rank(self, share: Share, vocabulary: int) -> PooledRank:
        run, recipe = self.run, inference_recipe(self.run.precision)
        weights = weights_of(share, run, recipe)
        batch = ProfiledPass(
            tokens=self.tokens,
            sequences=-(-self.tokens // min(self.tokens, self.length)),
            itemsize=recipe.compute,
            vocabulary=vocabulary,
            multiprocessors=card_limits(self.device).multiprocessors,
        )
        profiled = profiled_batch(share, batch)
        outside = cuda_context_bytes(self.device.capability) + nccl_bytes(self.ranks) + self.workspace
        left = self.device.total_memory - outside - weights.blocks.bytes - weights.blocks.tails - profiled.bytes
        room = int(left * self.fraction)
        bits = cache_bits(run.kv_cache, run.precision)
        return PooledRank(share, weights, profiled, pool_of(share, bits, room, BLOCK), left)

    def estimate(self) -> Estimate:
        """What the process holds on the fullest card.

        Raises:
            TooLargeError: weights and the profiled batch leave no room for keys and values.
        """
        rank = self.rank
        if rank.pool.tokens <= 0:
            taken = self.device.total_memory - rank.left
            needed = taken + BLOCK * rank.pool.token
            raise TooLargeError(
                f"weights and a batch of {self.tokens:,} tokens take {format_bytes(taken)} of {self.device.name}, "
                "which leaves nothing for keys and values; take more cards (parallel.tensor), "
                "fewer bits (run.quantization) or a larger card",
                needed,
            )
        return served(self._parts(), self.device, self._notes(), ranks=self.ranks)

    def _parts(self) -> dict[str, Fact]:
        rank, fraction = self.rank, self.fraction
        return {
            **weight_parts(rank.weights),
            "kv cache": Fact(
                line="kv_cache",
                bytes=rank.pool.bytes,
                formula=f"{fraction:g} of the {format_bytes(max(0, rank.left))} that weights and the profiled batch "
                f"leave: {rank.pool.words}, {BLOCK} to a block",
                source=f"{SOURCE}; {cache_source(rank.share.model)}",
                count=1,
            ),
            "profiled batch": Fact(
                line="activations",
                bytes=rank.profiled.bytes,
                formula=rank.profiled.formula,
                source="the model's shapes, as vLLM's layers of the same shapes hold them; " + SOURCE,
                lifetime="within a pass; set aside for good",
            ),
            "workspaces": Fact(
                line="workspaces",
                bytes=self.workspace,
                formula=f"{self.workspace:,} B of cuBLAS; the attention's own are not known",
                source=SOURCE,
                count=1,
            ),
        }

    def _notes(self) -> tuple[str, ...]:
        rank, fraction = self.rank, self.fraction
        unknown = (
            "CUDA graphs and the attention's workspaces are not known; for each GiB of them the pool has "
            f"{fraction:.2g} GiB less, so that the process grows by {1 - fraction:.2g} GiB"
        )
        notes = [
            f"free_gpu_memory_fraction = {fraction:g} of what is free after the profiled batch goes to keys and values",
            rank.pool.room(self.length, "at once"),
            unknown,
            *rank.pool.notes,
            UNMEASURED,
        ]
        return (*notes, *rank.place(self.parallel.ranks))


def estimate_tensorrt_llm(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate of the rank with the least room for keys and values.

    Raises:
        UserError: the workload contradicts itself.
        TooLargeError: weights and the profiled batch leave no room for keys and values.
    """
    if run.cpu_offload_gb is not None:
        raise UserError("run.cpu_offload_gb is vLLM's; TensorRT-LLM has every weight on the card")
    return TrtServer(model, run, device, parallel).estimate()
