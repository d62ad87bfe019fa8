"""Ways out of an out-of-memory error, by program and cause: only what exists in that program."""

from collections.abc import Iterator

from vramtui.core.observation.oom.report import OomReport, Way

WAYS = 3

WAIT = "Use another GPU, or wait: `vramtui ps` shows who holds the memory, `vramtui run --when-fits -- COMMAND` waits"
ONE_GPU_EACH = (
    "Give each process its own GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the first CUDA call"
)

# Program: ways in the order of least loss. Options are those of vLLM 0.19 (vllm/config, vllm/engine/arg_utils.py),
# SGLang 0.5 (srt/server_args.py), TGI 3 (launcher/src/main.rs), llama.cpp b7400 (common/arg.cpp), Ollama 0.12
# (envconfig), ComfyUI 0.3 (comfy/cli_args.py), TensorRT-LLM 1.0 (llmapi/llm_args.py), diffusers 0.35, JAX 0.6 and
# TensorFlow 2.18.
OF_PROGRAM: dict[str, tuple[str, ...]] = {
    "vLLM": (
        "Lower --max-num-seqs or --max-num-batched-tokens: the profiling pass and the sampler take less",
        "Lower --gpu-memory-utilization: vLLM leaves more memory outside its KV cache",
        "Lower --max-model-len, use a quantized model, or raise --tensor-parallel-size",
    ),
    "SGLang": (
        "Lower --mem-fraction-static: more memory stays outside weights and KV cache",
        "Lower --chunked-prefill-size or --cuda-graph-max-bs",
        "Raise --tp, or use a quantized model",
    ),
    "TGI": (
        "Lower --max-batch-prefill-tokens",
        "Lower --max-total-tokens and --max-batch-total-tokens",
        "Use --quantize, or more GPUs with --num-shard",
    ),
    "llama.cpp": (
        "A shorter context (-c), or a KV cache of -ctk q8_0 -ctv q8_0 with -fa on",
        "A smaller micro-batch (-ub 256)",
        "Fewer layers on the GPU (-ngl), more GPUs (-ts), or a smaller quantization",
    ),
    "Ollama": (
        "A shorter context: OLLAMA_CONTEXT_LENGTH, or num_ctx in the request",
        "OLLAMA_FLASH_ATTENTION=1 with OLLAMA_KV_CACHE_TYPE=q8_0",
        "Fewer layers on the GPU (num_gpu), or a smaller quantization",
    ),
    "ComfyUI": (
        "A smaller width and height, fewer frames, or tiled VAE decoding",
        "Model weights in fp8 or GGUF",
        "Start ComfyUI with --lowvram or --reserve-vram 1",
    ),
    "diffusers": (
        "pipe.enable_model_cpu_offload(): only the running component is on the GPU",
        "pipe.vae.enable_tiling() and a smaller resolution",
        "Quantized transformer weights (bitsandbytes nf4, GGUF)",
    ),
    "XLA": (
        "XLA_PYTHON_CLIENT_MEM_FRACTION=.95: JAX takes 75 % of the GPU by default",
        "A smaller batch, or jax.checkpoint around layers",
        "XLA_PYTHON_CLIENT_PREALLOCATE=false if another program shares the GPU",
    ),
    "TensorFlow": (
        "A smaller batch or input",
        "Mixed precision: tf.keras.mixed_precision.set_global_policy('mixed_float16')",
        "TF_GPU_ALLOCATOR=cuda_malloc_async joins free pieces",
    ),
    "TensorRT-LLM": (
        "Lower kv_cache_config.free_gpu_memory_fraction (default 0.9)",
        "Lower max_num_tokens or max_batch_size",
        "Raise the tensor parallel size, or use a quantized model",
    ),
    "CuPy": ("cupy.get_default_memory_pool().free_all_blocks() before large arrays", "Smaller arrays or chunks"),
    "a Rust program": ("A smaller or quantized model", "A shorter context or smaller batch"),
    "bitsandbytes": (
        "A smaller batch or gradient checkpointing",
        "A paged optimizer (paged_adamw_8bit) keeps states on the host",
    ),
    "DeepSpeed": (
        "A higher ZeRO stage, or offload_optimizer / offload_param to the CPU",
        "Gradient checkpointing, or a smaller micro-batch with more accumulation",
        "Smaller allgather_bucket_size and reduce_bucket_size",
    ),
    "MPS": (
        "A smaller batch or a smaller type of numbers",
        "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 removes the limit; the system may then run out",
    ),
}
TRAINING = (
    "Gradient checkpointing: activations of the layers are recomputed",
    "A smaller micro-batch with more gradient accumulation: the same training",
    "LoRA, an 8-bit optimizer, or FSDP over more GPUs",
)
INFERENCE = (
    "A smaller batch or a shorter input",
    "torch.inference_mode(), and weights in bf16 or quantized",
    "More GPUs (device_map='auto')",
)
PLAIN = (
    "A smaller batch, or a shorter sequence",
    "bf16 autocast, gradient checkpointing for training, torch.inference_mode() for inference",
    "`vramtui fit MODEL` shows what each change frees for your model",
)
LARGER = (
    "A shorter sequence, or a smaller image: the tensor grows with its square",
    "Attention without stored scores: attn_implementation='sdpa' or flash_attention_2",
    "Fused cross-entropy (Liger kernel), which does not store the logits",
)


def sentences_of(report: OomReport) -> Iterator[str]:
    """The cause, the figures, and the ways out, one line each."""
    yield report.cause_sentence()
    if numbers := report.numbers():
        yield numbers
    for way in ways_of(report):
        yield way.line


def ways_of(report: OomReport) -> tuple[Way, ...]:
    """Return up to three ways out in the order of least loss, those of the message itself first."""
    if report.own_ways:
        return report.own_ways[:WAYS]
    program = report.program
    of_program = tuple(map(Way, OF_PROGRAM.get(program, ())))
    usual = of_program or tuple(map(Way, {"training": TRAINING, "inference": INFERENCE}.get(program, PLAIN)))
    match report.cause:
        case "another process":
            shared = len(report.others) > 1 and (report.rank is not None or program in {"training", "DeepSpeed"})
            first = (Way(ONE_GPU_EACH, report.others_hold),) if shared else ()
            if program == "vLLM" and report.total and report.free is not None:
                usable = report.free + (report.in_use or report.reserved or 0)
                share = 100 * usable // report.total / 100
                first = (Way(f"--gpu-memory-utilization {share:.2f} uses what the others leave"),)
            return (*first, Way(WAIT, report.others_hold), *usual)[:WAYS]
        case "fragmentation" if not report.windows:
            return (
                Way(f"{report.setting}=expandable_segments:True joins cached pieces", report.unallocated),
                *usual[:2],
            )
        case "larger than the GPU":
            return tuple(map(Way, LARGER)) if program in {"PyTorch", "training", "inference"} else usual[:WAYS]
        case "refused":
            file = "On Windows a small page file limits GPU memory as well: enlarge it" if report.windows else WAIT
            return (Way("Try again: another process may have freed its memory in between"), Way(file))
        case "not enough memory" if report.spills:
            spilled = Way("The driver already keeps the rest in the host's memory, which is slow: make the job smaller")
            return (*usual[:2], spilled)
        case "host" | "shared memory":
            return ()
        case _:
            return usual[:WAYS]
