"""Out-of-memory messages as people post them, and what each is a case of."""

import json
import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom

GIB, MIB = 1 << 30, 1 << 20
TRACEBACK = """Traceback (most recent call last):
  File "/srv/anna/train.py", line 57, in <module>
    loss = model(batch)
  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1553, in _call_impl
    return forward_call(*args, **kwargs)
"""
ROOM = TRACEBACK + (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.00 MiB. GPU 0 has a total capacity of 23.65"
    " GiB of which 11.06 MiB is free. Including non-PyTorch memory, this process has 23.60 GiB memory in use. Of the"
    " allocated memory 23.20 GiB is allocated by PyTorch, and 4.87 MiB is reserved by PyTorch but unallocated. If"
    " reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
FRAGMENTED = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacty of 23.65 GiB of"
    " which 1.66 GiB is free. Including non-PyTorch memory, this process has 20.81 GiB memory in use. Of the allocated"
    " memory 12.09 GiB is allocated by PyTorch, and 4.84 GiB is reserved by PyTorch but unallocated."
)
NEIGHBOUR = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB of"
    " which 1.50 GiB is free. Process 1246069 has 60.00 GiB memory in use. Including non-PyTorch memory, this process"
    " has 17.69 GiB memory in use. Of the allocated memory 17.00 GiB is allocated by PyTorch, and 100.00 MiB is"
    " reserved by PyTorch but unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 128.00 MiB (GPU 0; 11.17 GiB total capacity; 10.85 GiB already"
    " allocated; 24.81 MiB free; 10.86 GiB reserved in total by PyTorch)"
)
FULL = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 5.98 GiB already allocated;"
    " 12.31 MiB free; 6.20 GiB reserved in total by PyTorch)"
)
XLA = (
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 7406166528 bytes."
)
VLLM = (
    "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV"
    " cache (2400). Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
)


REFUSED = (
    "RuntimeError: CUDA out of memory. Tried to allocate 12.50 MiB (GPU 0; 10.92 GiB total capacity; 8.57 MiB already"
    " allocated; 9.28 GiB free; 4.68 MiB cached)"
)
LIMITED = (
    "CUDA out of memory. Tried to allocate 2.13 GiB. GPU 0 has a total capacity of 8.00 GiB of which 6.10 GiB is free."
    " Process 9132 has 17179869184.00 GiB memory in use. Including non-PyTorch memory, this process has 17179869184.00"
    " GiB memory in use. 2.63 GiB allowed; Of the allocated memory 954.00 MiB is allocated by PyTorch, and 0 bytes is"
    " reserved by PyTorch but unallocated."
)
WINDOWS = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.73 GiB (GPU 0; 8.00 GiB total capacity;"
    " 17.20 GiB already allocated; 0 bytes free; 19.15 GiB reserved in total by PyTorch)"
)
CONTAINER = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. GPU 1 has a total capacty of 79.10"
    " GiB of which 364.31 MiB is free. Process 175080 has 1.46 GiB memory in use. Process 175356 has 77.26 GiB memory"
    " in use. Of the allocated memory 72.12 GiB is allocated by PyTorch, and 3.78 GiB is reserved by PyTorch but"
    " unallocated."
)
ASYNC = (
    "torch.cuda.OutOfMemoryError: Allocation on device 1 would exceed allowed memory. (out of memory)\n"
    "Currently allocated     : 10.25 GiB\nRequested               : 4.50 GiB\nDevice limit            : 12.00 GiB\n"
    "Free (according to CUDA): 0 bytes\nPyTorch limit (set by user-supplied memory fraction)\n"
    "                        : 17179869184.00 GiB"
)
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 17.36 GB, other allocations: 613.56 MB, max allowed: 18.13"
    " GB). Tried to allocate 192.00 MB on private pool."
)
ONE_SEQUENCE = (
    "INFO [gpu_model_runner.py:1289] Model loading took 18.14 GiB memory and 11.465340 seconds\n"
    "ERROR [core.py:387] ValueError: To serve at least one request with the models's max seq len (4096), (1.0 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (0.58 GiB). Based on the available memory,"
    " the estimated maximum model length is 2368. Try increasing `gpu_memory_utilization` or decreasing"
    " `max_model_len` when initializing the engine."
)
NO_ESTIMATE = (
    "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed,"
    " which is larger than the available KV cache memory (9.97 GiB). Try increasing `gpu_memory_utilization`"
)
AT_THE_START = (
    "(EngineCore pid=253) ValueError: Free memory on device cuda:0 (12.18/23.56 GiB) on startup is less than desired"
    " GPU memory utilization (0.92, 21.67 GiB). Decrease GPU memory utilization or reduce GPU memory used by other"
    " processes."
)
NO_BLOCKS = (
    "INFO [worker.py:295] the current vLLM instance can use total_gpu_memory (23.69GiB) x gpu_memory_utilization (0.90)"
    " = 21.32GiB\nINFO [worker.py:295] model weights take 6.59GiB; non_torch_memory takes 8.29GiB; PyTorch activation"
    " peak memory takes 4.93GiB; the rest of the memory reserved for KV Cache is -7.83GiB.\n"
    "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
)
SGLANG = (
    "[2025-07-02 07:41:58 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=21.73 GB, mem"
    " usage=60.50 GB.\nRuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value:"
    " mem_fraction_static=0.6"
)
LLAMA_CPP = (
    "llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) - 23306 MiB free\n"
    "load_tensors:        CUDA0 model buffer size = 20000.00 MiB\n"
    "llama_kv_cache_init:      CUDA0 KV buffer size =   306.00 MiB\n"
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 14136.04 MiB on device 0: cudaMalloc failed: out of memory"
    "\nggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 14822711296\n"
    "graph_reserve: failed to allocate compute buffers\n"
)
LLAMA_WEIGHTS = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144817.04 MiB on device 0: cudaMalloc failed: out of memory"
    "\nalloc_tensor_range: failed to allocate CUDA0 buffer of size 151851674624\n"
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer"
)
XLA_PARTS = XLA + (
    "\nBufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:  372.76MiB\n"
    "              constant allocation:         0B\n        maybe_live_out allocation:    9.64GiB\n"
    "     preallocated temp allocation:    4.44GiB\n                 total allocation:   14.44GiB"
)
TENSOR = (
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
    " shape[32,1024,64,64] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc"
)
BFC = (
    "W external/local_tsl/tsl/framework/bfc_allocator.cc:497] Allocator (GPU_0_bfc) ran out of memory trying to"
    " allocate 3.10GiB (rounded to 3328599808)requested by op StatelessRandomUniformV2\n"
    "I bfc_allocator.cc:1101] Stats: \nLimit:  10000000000\nInUse:   6000000000\nMaxInUse:  9000000000\n"
)
CUPY = "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 2,147,483,648 bytes (allocated so far: 512 bytes)."
TRITON = (
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376"
)
HOST = (
    "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes."
)
NUMPY = "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 7.45 GiB for an array with shape (1000000000,)"
KERNEL = (
    "Out of memory: Killed process 4211 (python) total-vm:90000000kB, anon-rss:52428800kB, file-rss:0kB, shmem-rss:0kB"
)
SLURM = "slurmstepd: error: Detected 1 oom_kill event in StepId=34418381.batch."
SHM = "RuntimeError: DataLoader worker (pid 40931) is killed by signal: Bus error."
CUBLAS = "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
CUDA = "torch.AcceleratorError: CUDA error: out of memory"
NCCL = "VM-0-16-ubuntu:392:494 [2] enqueue.cc:43 NCCL WARN Cuda failure 'out of memory'"
TORCHRUN = "  exitcode  : -9 (pid: 4211)"


@pytest.mark.parametrize(
    ("text", "program", "cause", "asked"),
    [
        (ROOM, "PyTorch", "not enough memory", 22 * MIB),
        (FRAGMENTED, "PyTorch", "fragmentation", 3 * GIB),
        (NEIGHBOUR, "PyTorch", "another process", 2 * GIB),
        (OLD, "PyTorch", "not enough memory", 128 * MIB),
        (FULL, "PyTorch", "not enough memory", 20 * MIB),
        (REFUSED, "PyTorch", "refused", round(12.5 * MIB)),
        (LIMITED, "PyTorch", "not enough memory", round(2.13 * GIB)),
        (WINDOWS, "PyTorch", "larger than the GPU", round(10.73 * GIB)),
        (CONTAINER, "PyTorch", "fragmentation", 448 * MIB),
        (MPS, "MPS", "not enough memory", 192 * MIB),
        (ASYNC, "PyTorch", "not enough memory", 4608 * MIB),
        (VLLM, "vLLM", "not enough memory", None),
        (ONE_SEQUENCE, "vLLM", "not enough memory", GIB),
        (NO_ESTIMATE, "vLLM", "not enough memory", 24 * GIB),
        (AT_THE_START, "vLLM", "another process", round(21.67 * GIB)),
        (NO_BLOCKS, "vLLM", "not enough memory", None),
        (SGLANG, "SGLang", "not enough memory", None),
        (LLAMA_CPP, "llama.cpp", "not enough memory", 14822711296),
        (LLAMA_WEIGHTS, "llama.cpp", "not enough memory", 151851674624),
        (XLA, "XLA", "not enough memory", 7406166528),
        (TENSOR, "TensorFlow", "not enough memory", 32 * 1024 * 64 * 64 * 4),
        (BFC, "TensorFlow", "fragmentation", 3328599808),
        (CUPY, "CuPy", "not enough memory", 2 * GIB),
        (TRITON, "Triton", "shared memory", 147456),
        (HOST, "the host", "host", GIB),
        (NUMPY, "the host", "host", round(7.45 * GIB)),
        (KERNEL, "the kernel", "host", None),
        (SLURM, "the kernel", "host", None),
        (SHM, "DataLoader", "host", None),
        (CUBLAS, "cuBLAS", "outside", None),
        (CUDA, "CUDA", "outside", None),
        (NCCL, "NCCL", "outside", None),
        (TORCHRUN, "the kernel", "host", None),
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ", "the kernel", "host", None),
        ("Killed", "the kernel", "host", None),
        ("run.sh: line 3: 12345 Killed                  python train.py", "the kernel", "host", None),
        ("[1]+  Killed                  python train.py", "the kernel", "host", None),
        ("zsh: killed     python train.py", "the kernel", "host", None),
        ("RuntimeError: unable to write to file </t_7>: No space left on device (28)", "DataLoader", "host", None),
        ("unable to mmap 1234 bytes from file </dev/shm/t>: Cannot allocate memory (12)", "the host", "host", None),
        ("OSError: [Errno 12] Cannot allocate memory", "the host", "host", None),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "the host", "host", None),
    ],
)
def test_the_cause_is_told_apart(text: str, program: str, cause: str, asked: int | None) -> None:
    report = read_oom(f"step 3: loss 2.1\n{text}\nterminating\n")
    assert (report.program, report.cause, report.asked) == (program, cause, asked)
    assert next(sentences_of(report))


def test_every_figure_is_read() -> None:
    report = read_oom(NEIGHBOUR)
    assert (report.gpu, report.others) == (0, {1246069: 60 * GIB})
    assert (report.total, report.free) == (round(79.19 * GIB), round(1.5 * GIB))
    assert (report.allocated, report.unallocated) == (17 * GIB, 100 * MIB)
    assert read_oom(OLD).unallocated == pytest.approx(0.01 * GIB, abs=1)
    assert read_oom(VLLM).pool == (8192, 2400)
    assert "--max-model-len 2400 fits" in list(sentences_of(read_oom(VLLM)))


def test_what_cuda_malloc_async_writes_is_read() -> None:
    report = read_oom(ASYNC)
    assert (report.gpu, report.total, report.free, report.allocated) == (1, 12 * GIB, 0, 10 * GIB + GIB // 4)
    assert report.limit is None, "no fraction was set"
    assert read_oom(ASYNC.replace("17179869184.00", "6.00")).limit == 6 * GIB


def test_a_full_card_is_not_called_fragmented() -> None:
    assert next(sentences_of(read_oom(FULL))).startswith("Not enough memory: 20.00 MiB was requested, 12.31 MiB was")


def test_in_a_container_the_process_itself_is_found_among_the_others() -> None:
    report = read_oom(CONTAINER)
    assert (report.in_use, report.others) == (round(77.26 * GIB), {175080: round(1.46 * GIB)})
    assert "expandable_segments" in " ".join(sentences_of(report))


def test_a_size_that_the_driver_does_not_know_is_none() -> None:
    report = read_oom(LIMITED)
    assert (report.in_use, report.others, report.limit) == (None, {9132: None}, round(2.63 * GIB))
    assert "within the process's own limit of 2.63 GiB" in next(sentences_of(report))


def test_memory_in_the_host_is_a_reason_to_make_the_job_smaller() -> None:
    spilled = WINDOWS.replace("10.73 GiB", "0.73 GiB")
    report = read_oom(spilled)
    assert (report.cause, report.spills) == ("not enough memory", True)
    assert "The driver already keeps the rest in the host's memory" in " ".join(sentences_of(report))
    assert "expandable_segments" not in " ".join(sentences_of(report))


def test_what_a_server_says_of_its_memory_is_kept() -> None:
    assert read_oom(ONE_SEQUENCE).held == {"weights": round(18.14 * GIB)}
    assert read_oom(ONE_SEQUENCE).pool == (4096, 2368)
    assert "--max-model-len 435595 (about) fits" in list(sentences_of(read_oom(NO_ESTIMATE)))
    assert "--gpu-memory-utilization 0.51 uses what is free" in " ".join(sentences_of(read_oom(AT_THE_START)))
    assert read_oom(NO_BLOCKS).held["activations"] == round(4.93 * GIB)
    assert "0.90, which is 21.32 GiB" in next(sentences_of(read_oom(NO_BLOCKS)))
    assert read_oom(SGLANG).held == {"weights": round(60.5 * GIB)}
    assert "--mem-fraction-static 0.6" in next(sentences_of(read_oom(SGLANG)))


def test_less_than_nothing_may_be_left_but_is_never_asked_for() -> None:
    nothing_left = NO_ESTIMATE.replace("(9.97 GiB)", "(-1.20 GiB)")
    assert next(sentences_of(read_oom(nothing_left))).endswith("KV cache and -1.20 GiB is left for it")
    with pytest.raises(UserError, match="no out-of-memory message"):
        read_oom(NO_ESTIMATE.replace("24.00 GiB", "-1 GiB"))


def test_llama_cpp_says_which_buffer_and_what_was_left() -> None:
    assert "the compute buffer of 13.80 GiB did not fit on device 0, and about 2.93 GiB was left there" in next(
        sentences_of(read_oom(LLAMA_CPP))
    )
    assert "the weights of 141.42 GiB" in next(sentences_of(read_oom(LLAMA_WEIGHTS)))


def test_the_parts_of_an_xla_program_are_read() -> None:
    held = read_oom(XLA_PARTS).held
    assert held == {"arguments": round(372.76 * MIB), "results": round(9.64 * GIB), "temporary": round(4.44 * GIB)}


def test_a_warning_of_tensorflow_is_no_failure() -> None:
    warning = "Allocator (GPU_0_bfc) ran out of memory trying to allocate 3.94GiB with freed_by_count=0. The caller"
    with pytest.raises(UserError, match="nothing failed"):
        read_oom(f"{warning} indicates that this is not a failure, but may mean that there could be gains")


def test_the_users_own_line_and_the_last_message_count() -> None:
    assert read_oom(ROOM).line == "/srv/anna/train.py:57"
    assert read_oom(f"{OLD}\n\n{ROOM}").asked == 22 * MIB


def test_a_message_with_figures_explains_those_that_follow_from_it() -> None:
    report = read_oom(f"{ROOM}\n{NCCL}\n{CUDA}\n{TORCHRUN}\n")
    assert (report.program, report.asked) == ("PyTorch", 22 * MIB)


def test_other_text_is_refused() -> None:
    for text in (
        "epoch 1: loss 2.3",
        "Killed 3 monsters",
        "reward: Killed",
        "warning: failed to mlock 1234-byte buffer (after previously locking 0 bytes): Cannot allocate memory",
    ):
        with pytest.raises(UserError, match="no out-of-memory message"):
            read_oom(text)


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    for around in (f"{text} Tried to allocate {text} MiB", f"Tried to allocate 1.2.3 GiB {text}", text):
        with suppress(UserError):
            list(sentences_of(read_oom(around)))


@pytest.mark.parametrize("digits", ["0", "9" * 5000, "1.2.3", "1e999"])
def test_no_number_breaks_it(digits: str) -> None:
    for message in (LIMITED, OLD, MPS, VLLM, ONE_SEQUENCE, AT_THE_START, NO_BLOCKS, SGLANG, LLAMA_CPP, XLA_PARTS, BFC):
        for place in re.finditer(r"\d+(?:\.\d+)?", message):
            with suppress(UserError):
                assert list(sentences_of(read_oom(message[: place.start()] + digits + message[place.end() :])))
    for message in (TENSOR, CUPY, TRITON, HOST, NUMPY, KERNEL):
        with suppress(UserError):
            assert list(sentences_of(read_oom(re.sub(r"\d+", digits, message))))


@given(
    st.sampled_from([ONE_SEQUENCE, AT_THE_START, NO_BLOCKS, SGLANG, LLAMA_CPP, XLA_PARTS, BFC, MPS, ASYNC]), st.data()
)
def test_no_cut_or_repeated_message_breaks_it(message: str, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(message)))
    end = data.draw(st.integers(begin, len(message)))
    digits = data.draw(st.sampled_from(["0", "9" * 400, "-1", ".", "1e9"]))
    with suppress(UserError):
        sentences = list(sentences_of(read_oom(f"{message[begin:end]}{digits}{message}{message[begin:end]}")))
        assert sentences
        assert all(sentence.strip() and "None" not in sentence for sentence in sentences)


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{ROOM}\n", encoding="utf-8")
    runner = CliRunner(env={"COLUMNS": "200"})
    done = runner.invoke(program(), ["oom", str(log)])
    assert done.exit_code == 0
    assert done.stdout.startswith("Not enough memory: 22.00 MiB was requested, 11.06 MiB was free")
    assert "requested at /srv/anna/train.py:57" in done.stdout
    pasted = runner.invoke(program(), ["oom", "--json"], input=NEIGHBOUR)
    assert json.loads(pasted.stdout)["cause"] == "another process"
    advised = runner.invoke(program(), ["oom", str(log), "--preset", "llama-3.2-3b-lora"])
    assert "What would have fitted: " in advised.stdout
    assert "--set " in advised.stdout
    assert runner.invoke(program(), ["oom", str(tmp_path / "none.log")]).exit_code == 2


def test_no_preset_is_asked_for_where_it_is_not_the_gpus_memory() -> None:
    told = CliRunner(env={"COLUMNS": "200"}).invoke(program(), ["oom", "--preset", "llama-3.2-3b-lora"], input=KERNEL)
    assert told.stdout.startswith(
        "Not GPU memory: the host's memory ran out and the kernel ended python (pid 4211), which held 50.00 GiB"
    )
    assert "--preset" not in told.stdout
    assert "What would have fitted" not in told.stdout
