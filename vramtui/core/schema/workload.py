"""A Workload: everything an estimator may look at. These Structs are also the schema of a preset's tables."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.models import AllocConf, Model, ModuleLoading, TensorSplit, Tokens, TorchRelease

Bytes = Annotated[int, Meta(ge=0, le=2**50, extra={"unit": "bytes"})]
Positive = Annotated[int, Meta(ge=1, le=2**30)]
NotNegative = Annotated[int, Meta(ge=0, le=2**24)]
NewTokens = Annotated[int, Meta(ge=0, le=2**32, extra={"unit": "tokens"})]
Fraction = Annotated[float, Meta(ge=0.0, le=1.0)]
PositiveFraction = Annotated[float, Meta(gt=0.0, le=1.0)]
PositiveNumber = Annotated[float, Meta(gt=0.0)]

# What diffusers' LoRA scripts adapt (examples/dreambooth/train_dreambooth_lora_sdxl.py).
DIFFUSERS_MODULES = ("to_q", "to_k", "to_v", "to_out")
USUAL_RANK = 16  # of adapters without a given rank, as the bundled LoRA presets have it

Precision = Literal[
    "fp32", "tf32", "bf16-mixed", "fp16-mixed", "fp8-mixed", "bf16", "fp16", "bf16-master", "fp16-master"
]
Optimizer = Literal[
    "sgd", "momentum", "adam", "adamw", "amsgrad", "rmsprop", "adagrad", "adafactor", "lion", "muon", "adamw_8bit",
    "paged_adamw_32bit", "paged_adamw_8bit",
]  # fmt: skip
OptimizerImplementation = Literal["foreach", "fused", "loop"]
Attention = Literal["eager", "flash", "efficient", "cudnn"]
Checkpointing = Literal["none", "full", "selective", "selective-ops"]
CrossEntropy = Literal["full", "full-fp32", "chunked", "chunked-logits", "chunked-output", "fused"]
CacheType = Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "q4_1", "q5_0", "q5_1", "iq4_nl"]
CacheImplementation = Literal["dynamic", "static"]
Offload = Literal["none", "model", "sequential"]
Engine = Literal["vllm", "sglang", "llama.cpp", "ollama"]
Quantization = Literal[
    "int8", "int4", "nf4", "nf4-double", "fp8", "mxfp4", "nvfp4",
    "q2_k", "q3_k", "q4_0", "q4_1", "q4_k", "q5_0", "q5_1", "q5_k", "q6_k", "q8_0", "q2_k_s", "q3_k_s", "q3_k_m",
    "q3_k_l", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m", "iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq2_m",
    "iq3_xxs", "iq3_xs", "iq3_s", "iq3_m", "iq4_nl", "iq4_xs", "tq1_0", "tq2_0", "mxfp4_moe",
]  # fmt: skip
Ranks = Annotated[int, Meta(ge=1, le=2**20)]
Megabytes = Annotated[float, Meta(gt=0.0, le=2**20, extra={"unit": "MiB"})]


class Parallel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Ranks along each dimension; their product is the number of GPUs.

    Attributes:
        data: replicas that see different batches.
        strategy: what the replicas share: nothing but gradients (`ddp`), or with `zero` and `fsdp` the states that
            zero_stage says.
        zero_stage: 1 shares optimizer states, 2 gradients as well, 3 weights as well. FSDP is stage 3.
        fsdp_version: 2 is `fully_shard`, 1 `FullyShardedDataParallel`.
        tensor: ranks that each hold a part of every matrix (Shoeybi et al. 2019).
        sequence_parallel: norms and dropouts are split along the sequence over the tensor ranks (Korthikanti et al.).
        pipeline: ranks that each hold some layers, scheduled 1F1B.
        virtual_pipeline: stretches of layers that each pipeline rank holds (interleaved).
        context: ranks that each see a part of every sequence.
        expert: of the data ranks, how many share the experts of one model.
        bucket_cap_mb: size of DDP's gradient buckets in MiB.
        reshard_after_forward: FSDP2 gives a block's gathered weights back after its forward pass.
        outer_apart: FSDP2 gathers embedding and output layer each by itself when it is their turn, not for as long as
            the model runs (torchtune's custom_sharded_layers: training/_distributed.py, shard_model, at bd2a0fc7).
        cpu_offload: optimizer states stay in host memory (ZeRO-Offload).
        param_offload: shards of weights and gradients do as well: FSDP's CPUOffloadPolicy, ZeRO-3's offload_param.
    """

    data: Ranks = 1
    strategy: Literal["ddp", "zero", "fsdp"] = "ddp"
    zero_stage: Annotated[int, Meta(ge=0, le=3)] = 0
    fsdp_version: Literal[1, 2] = 2
    tensor: Ranks = 1
    sequence_parallel: bool = False
    pipeline: Ranks = 1
    virtual_pipeline: Ranks = 1
    context: Ranks = 1
    expert: Ranks = 1
    bucket_cap_mb: Megabytes = 25.0
    reshard_after_forward: bool = True
    outer_apart: bool = False
    cpu_offload: bool = False
    param_offload: bool = False

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline * self.context


class Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes of a model's tensors as its file holds them, each in a type of its own.

    Attributes:
        embedding: the embedding of words, which llama.cpp leaves in host memory.
        blocks: all blocks together.
        output: the last norm, the output layer, and what else lies outside the blocks.
    """

    embedding: Bytes
    blocks: Bytes
    output: Bytes


class Lora(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Low-rank adapters of frozen weights (Hu et al. 2021; names as in peft's LoraConfig).

    Attributes:
        rank: width of the adapters' inner dimension.
        target_modules: linear layers that get one, by the last part of their names; `all-linear` is peft's word for
            all of a decoder's blocks.
        dropout: dropout on the adapters' input.
        use_dora: weights split into magnitude and direction (Liu et al. 2024).
        autocast_adapter_dtype: adapters of fp16 or bf16 weights are kept in fp32, peft's default; when off, or when
            the job casts the model after adapting it, they have the weights' type.
        prepare_for_kbit_training: embeddings, norms and the output layer of a quantised model are raised to fp32,
            as peft's prepare_model_for_kbit_training does; what stands between blocks is fp32 then.
    """

    rank: Positive
    target_modules: Annotated[tuple[str, ...], Meta(min_length=1)]
    dropout: Fraction = 0.0
    use_dora: bool = False
    autocast_adapter_dtype: bool = True
    prepare_for_kbit_training: bool = False


class TrainRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="train"):
    """One training job.

    Attributes:
        batch_size: the micro-batch one GPU sees.
        sequence_length: tokens in each sequence; of the source where there are two.
        image_tokens: of these, how many stand for images, which the model's tower reads first.
        audio_tokens: of these, how many stand for sound, which the model's tower for it reads first.
        target_length: tokens of the target, for encoder-decoders; as many as the source when absent.
        precision: what weights, products and states are kept in; `-mixed` is torch.autocast over fp32 weights,
            `-master` half-precision weights with fp32 copies in the optimizer.
        optimizer: which optimizer.
        optimizer_implementation: all tensors at once, one kernel for all, or one after another; torch's own choice when
            absent, which is one after another for Adafactor and all at once for the others.
        attention: eager, which keeps the scores, or one of torch's fused kernels.
        activation_offloading: inputs of checkpointed blocks wait in host memory (full checkpointing, decoders only).
        checkpointing: which activations are made again in the backward pass: of whole blocks, or only the attention's
            scores (`selective`); or all but what torchtitan's policy keeps (`selective-ops`): fused attention and every
            other product of a linear layer.
        use_reentrant: blocks that run again have no graph the first time (torch.utils.checkpoint's parameter): the
            default of transformers before 5, axolotl and LLaMA-Factory.
        gradient_accumulation_steps: micro-batches to one optimizer step.
        cross_entropy: over all logits at once, over all in fp32 that the loop's `outputs` keep (`full-fp32`;
            transformers 4.38), in chunks of tokens that are made again for backward, over all in their own type where
            a compiled loss raises chunks to fp32 (axolotl), or fused with the output layer so
            that the gradient is made in the forward pass. Around a compiled loss torchtune makes them in chunks that
            are kept (`chunked-output`).
        use_liger_kernel: a decoder's RMS norms, gated MLPs, rotary positions and loss are Liger's kernels, as the key
            of this name in Hugging Face's TrainingArguments sets them.
        max_grad_norm: gradients are clipped to this norm; not at all when absent.
        optimizer_in_backward: each tensor is stepped as soon as its gradient is made, which is freed then (torchtune).
        frozen_layers: blocks from the bottom, with the embeddings, that get no gradients.
        quantization: how the frozen weights are kept under adapters (QLoRA).
        quantize_moe_experts: fused experts are quantized too, and those of a layer dequantized while it runs (axolotl).
        shorter_samples: sequence_length only limits the samples, which are neither packed nor padded to it.
        lora: adapters.
        offload: of a pipeline, whether its text encoders and VAE stay on the card while the denoiser is trained, as
            when absent; with `model` they are off it, or their answers were worked out before.
        compile: the model runs through torch.compile: the parts are those of eager code, and by how much compiled jobs
            were seen to differ is said with the estimate.
        module_loading: kernels come to the card when first used, or all at the start: CUDA_MODULE_LOADING=EAGER, CUDA
            before 11.7, PyTorch before 1.13.
        torch: the release of PyTorch that runs it, as torch.__version__ begins ("2.13"); the newest that is known when
            absent. Releases differ in what they keep, as cuBLAS's workspaces.
        alloc_conf: settings of the caching allocator, as PYTORCH_ALLOC_CONF has them (before PyTorch 2.9:
            PYTORCH_CUDA_ALLOC_CONF); its defaults when absent.
    """

    batch_size: Positive = 1
    sequence_length: Tokens | None = None
    image_tokens: Tokens | None = None
    audio_tokens: Tokens | None = None
    target_length: Tokens | None = None
    precision: Precision = "bf16-mixed"
    optimizer: Optimizer = "adamw"
    optimizer_implementation: OptimizerImplementation | None = None
    attention: Attention = "flash"
    checkpointing: Checkpointing = "none"
    activation_offloading: bool = False
    use_reentrant: bool = False
    gradient_accumulation_steps: Positive = 1
    cross_entropy: CrossEntropy = "full"
    use_liger_kernel: bool = False
    max_grad_norm: PositiveNumber | None = None
    optimizer_in_backward: bool = False
    frozen_layers: NotNegative = 0
    quantization: Quantization | None = None
    quantize_moe_experts: bool = False
    shorter_samples: bool = False
    lora: Lora | None = None
    offload: Offload | None = None
    compile: bool = False
    module_loading: ModuleLoading = "lazy"
    torch: TorchRelease | None = None
    alloc_conf: AllocConf | None = None

    @property
    def stepping(self) -> OptimizerImplementation:
        """How the optimizer goes through the tensors (`_default_to_fused_or_foreach`, torch/optim, 2.13)."""
        if self.optimizer_implementation is not None:
            return self.optimizer_implementation
        return "loop" if self.optimizer == "adafactor" else "foreach"


class InferRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="infer"):
    """Generation: a prompt and new tokens after it, for each sequence of the batch; or one forward pass.

    Attributes:
        batch_size: sequences, images or samples at once.
        sequence_length: tokens of the prompt; of the source where there are two.
        image_tokens: of these, how many stand for images, which the model's tower reads first.
        audio_tokens: of these, how many stand for sound, which the model's tower for it reads first.
        new_tokens: tokens generated after it.
        precision: what weights and products are kept in.
        quantization: how the weights of linear layers are kept instead; in a pipeline those of the denoiser.
        encoder_quantization: of a pipeline's large text encoders, if it is another, or `none`; a GGUF type of the
            denoiser leaves them as they are.
        kv_cache: what keys and values are kept in; the precision's type when absent.
        cache_implementation: grown by concatenation, or allocated for the whole length at once.
        attention: eager, which keeps the scores, or one of torch's fused kernels.
        draft: a smaller model that proposes tokens (speculative decoding).
        offload: what of a pipeline is on the card: all of it as when absent, one part at a time
            (`enable_model_cpu_offload`), or one layer at a time (`enable_sequential_cpu_offload`).
        vae_tiling: images are decoded in tiles.
        vae_slicing: images of a batch are decoded one after another.
        module_loading: kernels come to the card when first used, or all at the start: CUDA_MODULE_LOADING=EAGER, CUDA
            before 11.7, PyTorch before 1.13.
        torch: the release of PyTorch that runs it, as torch.__version__ begins ("2.13"); the newest that is known when
            absent. Releases differ in what they keep, as cuBLAS's workspaces.
        alloc_conf: settings of the caching allocator, as PYTORCH_ALLOC_CONF has them (before PyTorch 2.9:
            PYTORCH_CUDA_ALLOC_CONF); its defaults when absent.
    """

    batch_size: Positive = 1
    sequence_length: Tokens | None = None
    image_tokens: Tokens | None = None
    audio_tokens: Tokens | None = None
    new_tokens: NewTokens = 0
    precision: Precision = "bf16"
    quantization: Quantization | None = None
    encoder_quantization: Quantization | Literal["none"] | None = None
    kv_cache: CacheType | None = None
    cache_implementation: CacheImplementation = "dynamic"
    attention: Attention = "flash"
    draft: Model | None = None
    offload: Offload | None = None
    vae_tiling: bool | None = None
    vae_slicing: bool | None = None
    module_loading: ModuleLoading = "lazy"
    torch: TorchRelease | None = None
    alloc_conf: AllocConf | None = None


class ServeRun(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="serve"):
    """A server that holds a model and a pool of keys and values.

    Attributes:
        engine: `vllm` and `sglang` take a share of the card; `llama.cpp` takes what model and context need; `ollama`
            is llama.cpp with Ollama's defaults, whose context follows from the GPU's memory.
        gpu_memory_utilization: the share of the card vLLM takes; as its release sets it (0.92 since 0.20) when absent.
        mem_fraction_static: the share that SGLang takes for weights and cache; as it sets it for the card when absent.
        max_model_len: the longest sequence; llama.cpp's context, over all its sequences.
        max_num_seqs: sequences at once; when absent vLLM's own default for the card (256, or 1024 from 70 GiB on), or
            the four that share the cache of llama.cpp; where given each has its own part of that.
        max_num_batched_tokens: tokens in one pass (SGLang's chunk); llama.cpp's
            micro-batch (512) when absent there.
        precision: what weights and products are kept in.
        quantization: how the weights of linear layers are kept instead.
        unquantized: modules that stay in 16 bits all the same, as a checkpoint's config.json lists them.
        kv_cache: what keys and values are kept in; the precision's type when absent.
        kv_cache_v: llama.cpp's type of values; that of keys when absent.
        block_size: tokens in one page of the cache.
        enforce_eager: no CUDA graphs.
        graphs_in_share: CUDA graphs are taken out of the share, as vLLM does since 0.20 unless
            VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS=0; otherwise on top of it. As the version has it when absent.
        engine_version: vLLM's or SGLang's release, as 0.6.3, or llama.cpp's build, as b5466; the newest when absent.
        prefix_caching: vLLM keeps prefixes, and of layers with a state a second one; as its release has it when absent.
        drafts: tokens that vLLM drafts in a pass with the model's own layer for it (MTP), which is one layer more.
        is_v1: vLLM's V1 engine, as VLLM_USE_V1 has it in 0.7 to 0.10; as its release has it when absent.
        cpu_offload_gb: GiB of each rank's weights that vLLM keeps in host memory.
        kv_connector: vLLM hands keys and values to another server or cache (LMCache), whose buffers are unknown.
        max_mamba_cache_size: states of whole sequences in SGLang's pool; a share of it when absent.
        text_only: vLLM loads no tower and profiles no images (--language-model-only).
        gpu_layers: layers on the card, for llama.cpp, the output layer being the first; all when absent.
        tensor_split: shares of llama.cpp's GPUs (-ts 3,1), as many as parallel.pipeline; alike when absent.
        cpu_moe: the first blocks whose experts llama.cpp leaves in host memory (-ncmoe); none when absent.
        no_kv_offload: llama.cpp's cache is in host memory (-nkvo).
        attention: llama.cpp's flash attention, or `eager` for -fa off.
        mmproj: llama.cpp has the projector for images on its first GPU.
        stored: what the model's file really holds, where it was looked at.
    """

    engine: Engine = "vllm"
    gpu_memory_utilization: PositiveFraction | None = None
    mem_fraction_static: PositiveFraction | None = None
    max_model_len: Tokens | None = None
    max_num_seqs: Positive | None = None
    max_num_batched_tokens: Tokens | None = None
    precision: Precision = "bf16"
    quantization: Quantization | None = None
    unquantized: Literal["attention", "attention and outer layers", "all but experts"] | None = None
    kv_cache: CacheType | None = None
    kv_cache_v: CacheType | None = None
    block_size: Tokens = 16
    enforce_eager: bool = False
    graphs_in_share: bool | None = None
    engine_version: TorchRelease | None = None
    prefix_caching: bool | None = None
    drafts: Positive | None = None
    is_v1: bool | None = None
    cpu_offload_gb: Annotated[float, Meta(ge=0, le=2**20)] | None = None
    kv_connector: bool = False
    max_mamba_cache_size: Positive | None = None
    text_only: bool = False
    gpu_layers: NotNegative | None = None
    tensor_split: TensorSplit | None = None
    cpu_moe: NotNegative | None = None
    no_kv_offload: bool = False
    attention: Attention = "flash"
    mmproj: bool = False
    stored: Stored | None = None

    @property
    def is_llama_cpp(self) -> bool:
        return self.engine in {"llama.cpp", "ollama"}


Run = TrainRun | InferRun | ServeRun


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model and what is done with it, on one GPU or one of several."""

    model: Model
    run: Run
    parallel: Parallel | None = None

    def with_run(self, **values: Any) -> "Workload":  # noqa: ANN401 - values of any field of the run
        return msgspec.structs.replace(self, run=msgspec.structs.replace(self.run, **values))


def own_length(workload: Workload) -> int | None:
    """The longest sequence that the model was made for, in tokens; None if it does not say."""
    length = getattr(workload.model, "max_position_embeddings", None)
    return length if isinstance(length, int) and length > 0 else None


def beyond_own_length(workload: Workload) -> str:
    """A sentence that the run asks for more tokens than the model was made for; empty if it does not."""
    run, own = workload.run, own_length(workload)
    key = "max_model_len" if isinstance(run, ServeRun) else "sequence_length"
    asked = getattr(run, key)
    if own is None or asked is None or asked <= own:
        return ""
    return f"run.{key} = {asked:,} is beyond the {own:,} tokens that the model was made for (max_position_embeddings)."
