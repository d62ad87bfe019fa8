"""Servers on an emulated card end once they listen, what a job kills tells its end, and weights of vLLM are made up."""

import ctypes
import importlib
import os
import signal
import sys
import time
from typing import Any

from . import socket_dir
from .import_hook import ModuleChanges, around

LOADERS = "vllm.model_executor.model_loader"
GPTQ = "vllm.model_executor.layers.quantization"
WRITING = ("batch_", "single_", "sampling", "page", "norm", "rope", "cascade", "silu", "gelu", "trtllm_comm")
WEIGHTS = ("*.safetensors", "*.bin", "*.pt", "*.gguf")
LONGEST_TELLING = 10.0  # seconds for a process to tell its end before it is killed
MOST_TOKENS = 64  # of an answer whose end is never sampled; none allocates more than the first
NOTES = [f"vramtui: no end of an answer is sampled here: each ends after {MOST_TOKENS} tokens\n"]
LISTENS = "it waits for requests: what one more would load or compute is not in it"
CHANGES = ModuleChanges()


def prepare() -> None:
    """Change what vLLM (0.32: model_loader/default_loader.py) and servers of HTTP do where no card answers."""
    CHANGES.put_on()
    for name in ("kill", "killpg"):  # a group has the number of the process that began it
        around(os, name, hear_and_kill)


def hear_and_kill(kill: Any, pid: int, sign: int) -> None:
    """Let another process tell its end and its last figures, if it used the card, and then kill it. A process that is
    killed from outside, as by the kernel where memory runs out, tells no end, and so has failed.
    """
    folder, last = os.environ.get(socket_dir.REPORTS, ""), time.monotonic() + LONGEST_TELLING
    is_end = folder and pid != os.getpid() and sign in (signal.SIGKILL, signal.SIGTERM)
    if is_end and any(name.startswith(f"{pid}-") for name in os.listdir(folder)):
        asked = os.path.join(folder, socket_dir.ASKED.format(pid, int(sign)))
        open(asked, "w").close()
        # One that has ended, but was not waited for, has no program any more.
        while os.path.exists(asked) and os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < last:
            time.sleep(0.02)
    kill(pid, sign)


@CHANGES.when("vllm.distributed.device_communicators.cuda_wrapper")
@CHANGES.when("flashinfer.comm.cuda_ipc")
def open_driver(module: Any) -> None:
    """The emulated driver is the runtime that is loaded: both open CUDA's by its path, past the driver that stands in
    front of it (vLLM 0.19, FlashInfer 0.6.6).
    """
    driver = os.path.join(os.environ["TRITON_LIBCUDA_PATH"], "libcuda.so.1")
    module.find_loaded_library = lambda *_: driver
    if hasattr(module, "cudart"):  # opened by then, but not used yet
        module.cudart = module.CudaRTLibrary()


@CHANGES.around("vllm.v1.worker.gpu.sample.sampler", "Sampler.__call__")
def sample_each(act: Any, self: Any, logits: Any, batch: Any) -> Any:
    """How many tokens each request got is computed on the card since vLLM 0.32 (v1/worker/gpu/input_batch.py): where it
    reads as none the engine waits for them for ever. One, but where a part of the prompt is still to come.
    """
    answer = act(self, logits, batch)
    ends = batch.num_computed_tokens_np + batch.num_scheduled_tokens
    numbers = sys.modules[act.__module__].torch.from_numpy((ends >= batch.prefill_len_np).astype("int32"))
    answer.num_sampled.copy_(numbers)
    return answer


@CHANGES.around("vllm.v1.core.sched.utils", "check_stop")
def end_answers(check: Any, request: Any, *arguments: Any) -> bool:
    """End an answer after `MOST_TOKENS`, as if the model had sampled its end there, where the request does not ask for
    more at least: else each goes on to what the model may answer at most (`check_stop`, v1/core/sched/utils.py, 0.32).
    The cache of all tokens is there before the first.
    """
    if check(request, *arguments):
        return True
    asked = request.sampling_params
    if asked.ignore_eos or request.num_output_tokens < max(MOST_TOKENS, asked.min_tokens):
        return False
    while NOTES:
        sys.stderr.write(NOTES.pop())
    request.status = sys.modules[check.__module__].RequestStatus.FINISHED_STOPPED
    return True


@CHANGES.when("cuda.bindings.runtime")
def choose_by_driver(module: Any) -> None:
    """CUDA's Python (12.9) has a runtime of its own inside, which the emulated driver cannot start."""
    module.cudaSetDevice = lambda device: (module.cudaError_t(ctypes.CDLL(None).cudaSetDevice(int(device))),)


class _Nothing:
    """A module of FlashInfer's kernels that was never compiled: each of them does what it does on the card, nothing."""

    def __getattr__(self, name: str) -> Any:
        return None if name == "workspace_size" else lambda *_: [] if name == "plan" else None


@CHANGES.around("flashinfer.jit.core", "JitSpec.build_and_load")
@CHANGES.around("sglang.kernels.jit.utils.compile.loader", "load_jit")
def compile_no_kernels(build: Any, what: Any, *names: Any, **files: Any) -> Any:
    """Compile no kernels that write into tensors which Python gives them (FlashInfer 0.6.18, SGLang 0.5.20)."""
    sources, name = files.get("cuda_files"), str(getattr(what, "name", ""))
    is_writing = not sources[0].startswith("distributed") if sources else name.startswith(WRITING)
    return _Nothing() if is_writing else build(what, *names, **files)


@CHANGES.around(f"{LOADERS}.default_loader", "DefaultModelLoader.load_weights")
def make_weights_up(load: Any, self: Any, model: Any, model_config: Any) -> Any:
    """A model with a config but no weights gets those of `--load-format dummy`; nothing is downloaded."""
    if _has_weights(model_config.model):
        return load(self, model, model_config)
    sys.stderr.write(f"vramtui: no weights of {model_config.model} are here: they are made up from its config\n")
    dummy = importlib.import_module(f"{LOADERS}.dummy_loader")
    return dummy.DummyModelLoader(self.load_config).load_weights(model, model_config)


@CHANGES.around(f"{GPTQ}.gptq", "GPTQConfig.maybe_update_config")
@CHANGES.around(f"{GPTQ}.gptq_marlin", "GPTQMarlinConfig.maybe_update_config")
@CHANGES.around(f"{GPTQ}.auto_gptq", "AutoGPTQConfig.maybe_update_config")  # since vLLM 0.27 at the latest
def quantize_blocks(update: Any, self: Any, model: str, *arguments: Any, **named: Any) -> None:
    """Let GPTQ quantise all linear layers of blocks: which it has, vLLM 0.19 reads off the types of weights."""
    update(self, model, *arguments, **named)
    if not self.modules_in_block_to_quantize and not _has_weights(model):
        self.modules_in_block_to_quantize = [".layers."]


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


@CHANGES.around("uvicorn.server", "Server.startup")
async def end_when_ready(startup: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """End vLLM and LMDeploy (0.18), whose processes never rest, as soon as they listen."""
    await startup(self, *arguments, **named)
    if {"vllm", "lmdeploy"} & sys.modules.keys() and getattr(self, "started", True):
        _tell_served()


@CHANGES.around("sglang.srt.entrypoints.http_server", "_wait_and_warmup")
def end_when_warm(warm: Any, *arguments: Any, **named: Any) -> None:
    """So with SGLang once it has answered a request of its own (srt/entrypoints/http_server.py, 0.5.6 and 0.5.20)."""
    warm(*arguments, **named)
    _tell_served()


def _tell_served() -> None:
    """End the job, where it is to end by itself: processes with a probe as they see this file, then the others."""
    if socket_dir.STEPS in os.environ:
        open(os.path.join(os.environ[socket_dir.REPORTS], socket_dir.SERVED), "w").close()
