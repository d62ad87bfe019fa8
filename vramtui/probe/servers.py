"""vLLM and SGLang on an emulated card: weights that are not there are made up, and a server that is ready may end."""

import ctypes
import functools
import importlib
import os
import signal
import sys
from typing import Any

from . import socket_dir
from .import_hook import around, when_imported

LOADERS = "vllm.model_executor.model_loader"
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
GPTQ = (("gptq", "GPTQConfig"), ("gptq_marlin", "GPTQMarlinConfig"))
MOST_TOKENS = 64  # of an answer whose end is never sampled; none allocates more than the first
# What opens CUDA's runtime by its path, past the driver that stands in front of it (vLLM 0.19, FlashInfer 0.6.6).
BY_PATH = ("vllm.distributed.device_communicators.cuda_wrapper", "flashinfer.comm.cuda_ipc")


def prepare() -> None:
    """Change what vLLM (0.32: model_loader/default_loader.py) and the HTTP server do where no card answers."""
    when_imported(f"{LOADERS}.default_loader", _make_weights_up)
    if socket_dir.STEPS in os.environ:  # the job is to end by itself
        when_imported("uvicorn.server", _end_when_ready)
        when_imported("sglang.srt.entrypoints.http_server", _end_when_warm)
    for name in BY_PATH:
        when_imported(name, _open_driver)
    for name, config in GPTQ:
        when_imported(f"vllm.model_executor.layers.quantization.{name}", functools.partial(_quantize_blocks, config))
    when_imported("vllm.v1.worker.gpu.sample.sampler", _sample_each)
    when_imported("vllm.v1.core.sched.utils", _end_answers)
    when_imported("cuda.bindings.runtime", _choose_by_driver)
    when_imported("flashinfer.comm.trtllm_ar", _compile_no_reductions)


def _open_driver(module: Any) -> None:
    """The emulated driver is the runtime that is loaded."""
    driver = os.path.join(os.environ["TRITON_LIBCUDA_PATH"], "libcuda.so.1")
    module.find_loaded_library = lambda *_: driver
    if hasattr(module, "cudart"):  # opened by then, but not used yet
        module.cudart = module.CudaRTLibrary()


def _sample_each(module: Any) -> None:
    """How many tokens each request got is computed on the card since vLLM 0.32 (v1/worker/gpu/input_batch.py): where it
    reads as none the engine waits for them for ever. One, but where a part of the prompt is still to come.
    """

    def sample(act: Any, self: Any, logits: Any, batch: Any) -> Any:
        answer = act(self, logits, batch)
        ends = batch.num_computed_tokens_np + batch.num_scheduled_tokens
        numbers = module.torch.from_numpy((ends >= batch.prefill_len_np).astype("int32"))
        answer.num_sampled.copy_(numbers)
        return answer

    around(module.Sampler, "__call__", sample)


def _end_answers(module: Any) -> None:
    """End an answer after `MOST_TOKENS`, as if the model had sampled its end there, where the request does not ask for
    more at least: else each goes on to what the model may answer at most (`check_stop`, v1/core/sched/utils.py, 0.32).
    The cache of all tokens is there before the first.
    """
    notes = [f"vramtui: no end of an answer is sampled here: each ends after {MOST_TOKENS} tokens\n"]

    def check_stop(check: Any, request: Any, *arguments: Any) -> bool:
        if check(request, *arguments):
            return True
        asked = request.sampling_params
        if asked.ignore_eos or request.num_output_tokens < max(MOST_TOKENS, asked.min_tokens):
            return False
        while notes:
            sys.stderr.write(notes.pop())
        request.status = module.RequestStatus.FINISHED_STOPPED
        return True

    around(module, "check_stop", check_stop)


def _choose_by_driver(module: Any) -> None:
    """CUDA's Python (12.9) has a runtime of its own inside, which the emulated driver cannot start."""
    module.cudaSetDevice = lambda device: (module.cudaError_t(ctypes.CDLL(None).cudaSetDevice(int(device))),)


class _Nothing:
    """A module of FlashInfer's kernels that was never compiled: each of them does what it does on the card, nothing."""

    def build_and_load(self) -> "_Nothing":
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def _compile_no_reductions(module: Any) -> None:
    """Skip FlashInfer's reductions among ranks: they return nothing here, and compiling them takes nvcc and minutes."""
    module.gen_trtllm_comm_module = _Nothing


def _make_weights_up(module: Any) -> None:
    """A model with a config but no weights gets those of `--load-format dummy`; nothing is downloaded."""

    def load_weights(load: Any, self: Any, model: Any, model_config: Any) -> Any:
        if _has_weights(model_config.model):
            return load(self, model, model_config)
        sys.stderr.write(f"vramtui: no weights of {model_config.model} are here: they are made up from its config\n")
        dummy = importlib.import_module(f"{LOADERS}.dummy_loader")
        return dummy.DummyModelLoader(self.load_config).load_weights(model, model_config)

    around(module.DefaultModelLoader, "load_weights", load_weights)


def _quantize_blocks(config: str, module: Any) -> None:
    """Let GPTQ quantise all linear layers of blocks: which it has, vLLM 0.19 reads off the types of weights."""

    def maybe_update_config(update: Any, self: Any, model: str, *arguments: Any, **named: Any) -> None:
        update(self, model, *arguments, **named)
        if not self.modules_in_block_to_quantize and not _has_weights(model):
            self.modules_in_block_to_quantize = [".layers."]

    around(getattr(module, config), "maybe_update_config", maybe_update_config)


def _has_weights(model: str) -> bool:
    """Return whether the folder `model` has files of weights, or what was downloaded of that name."""
    from pathlib import Path

    folder = Path(model)
    if not folder.is_dir():
        try:
            folder = Path(importlib.import_module("huggingface_hub").snapshot_download(model, local_files_only=True))
        except Exception:
            return False
    return any(next(folder.glob(pattern), None) is not None for pattern in WEIGHTS)


def _end_when_ready(module: Any) -> None:
    """Ask a server of a model to end as soon as it listens, as Ctrl-C's gentler sister would."""

    async def listen(startup: Any, self: Any, *arguments: Any, **named: Any) -> None:
        await startup(self, *arguments, **named)
        if "vllm" in sys.modules and self.started:
            os.kill(os.getpid(), signal.SIGTERM)

    around(module.Server, "startup", listen)


def _end_when_warm(module: Any) -> None:
    """End SGLang once it has answered a request of its own (srt/entrypoints/http_server.py, 0.5.6); asked to end by a
    signal it kills itself.
    """

    def warm_and_end(warm: Any, *arguments: Any, **named: Any) -> None:
        warm(*arguments, **named)
        module.kill_process_tree(os.getpid(), include_parent=False)
        sys.stderr.flush()
        os._exit(0)

    around(module, "_wait_and_warmup", warm_and_end)
