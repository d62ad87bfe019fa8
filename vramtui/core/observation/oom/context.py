"""The job that a log names: program, command line, GPU, rank, and the line of the user's code."""

import ast
import re
import shlex
from typing import NamedTuple

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import parse_size

# Programs by signs in their logs, the most specific first: a TGI shard and ComfyUI run PyTorch as well.
_SIGNS: tuple[tuple[str, "re.Pattern[str]"], ...] = (
    ("ComfyUI", re.compile(r"ComfyUI|comfy[/\\](?:ldm|sd|model|samplers|sample)")),
    ("TensorRT-LLM", re.compile(r"\[TensorRT-LLM\]|\[TRT-LLM\]|tensorrt_llm")),
    ("TGI", re.compile(r"text_generation_(?:server|launcher|router|client)")),
    ("SGLang", re.compile(r"\bsglang\b|sgl_kernel|mem_fraction_static")),
    ("vLLM", re.compile(r"\bvllm[/.\\ ]|vLLM API|LLM engine \(v|EngineCore|gpu_model_runner|\[core\.py:\d|VllmWorker")),
    ("Ollama", re.compile(r"\bollama\b|llama runner", re.IGNORECASE)),
    ("DeepSpeed", re.compile(r"deepspeed[/\\](?:runtime|ops|utils)|\bzero_optimization\b|DeepSpeedEngine")),
    ("bitsandbytes", re.compile(r"bitsandbytes[/\\]|csrc/ops\.cu")),
    ("diffusers", re.compile(r"diffusers[/\\](?:pipelines|models)|Pipeline\.from_pretrained")),
    ("training", re.compile(r"\.backward\(|optimizer\.step\(|trainer\.train\(|[Rr]unning training|training_step")),
    ("training", re.compile(r"torch[/\\]autograd")),
    ("inference", re.compile(r"model\.generate\(|generation[/\\]utils\.py|inference_mode|no_grad\(")),
)
_GPU_NAMES = (
    re.compile(
        r"Device \d+: (?:NVIDIA )?((?:GeForce |Tesla |Quadro |RTX |A\d|H\d|L\d|B\d|V\d|GH|GB)[\w .-]{1,60}?), compute"
    ),
    re.compile(r"cuda:\d+ (?:NVIDIA )?([A-Z][\w .-]{2,60}?) *:"),
    re.compile(
        r"\bNVIDIA ((?:GeForce|RTX|Tesla|Quadro|A\d{1,3}|H\d{2,3}|L\d{1,2}S?|B\d{3}|GH200|GB200)"
        r"[\w .-]{0,40}?)(?=[,)|:\n\[]|  |$)"
    ),
)
_RANK = re.compile(r"^\[rank(\d{1,5})\]|\brank[ =:]+(\d{1,5})\b|\bTP(\d{1,3})\b", re.MULTILINE)
_DEVICES = (  # ComfyUI's report, and its start-up lines
    ("total", re.compile(r"VRAM Total:?\*{0,2}:? *(\d{6,15})\b")),
    ("free", re.compile(r"VRAM Free:?\*{0,2}:? *(\d{6,15})\b")),
    ("total", re.compile(r"Total VRAM (\d{2,8} MB)")),
)
_STARTED = re.compile(
    r"^(?:[#$>+] |.{0,40}?[$#%] )?((?:[A-Z_][A-Z0-9_]*=\S+ )*(?:\S*/)?(?:python3?|torchrun|accelerate launch|deepspeed|"
    r"vllm serve|sglang|llama-(?:server|cli|bench)|\./\S*llama-\w+|ollama run|axolotl train|"
    r"llamafactory-cli train|tune run|text-generation-launcher|trtllm-serve)\b[^\n]{0,4000})",
    re.MULTILINE,
)
# What vLLM prints at its start: its release, its own arguments (all of them before 0.8), and what it made of them.
_VLLM_RELEASE = re.compile(r"(?:vLLM API server version|engine \(v|█ +version) ?v?(\d+\.\d+(?:\.\d+)?)")
_VLLM_ARGS = re.compile(r"non-default args: (\{[^\n]{0,8000}\})")
_VLLM_CONFIG = re.compile(r"engine \(v[\w.+]+\) with config: [^\n]{0,8000}|args: Namespace\([^\n]{0,8000}")
_VLLM_CHUNK = re.compile(r"max_num_batched_tokens[= ](\d+)\.?$", re.MULTILINE)
_VLLM_KEYS = (
    "model max_model_len max_num_seqs max_num_batched_tokens gpu_memory_utilization dtype quantization kv_cache_dtype "
    "tensor_parallel_size pipeline_parallel_size data_parallel_size enforce_eager cpu_offload_gb"
)
_VLLM_RENAMED = {"model_tag": "model", "max_seq_len": "max_model_len"}
_VLLM_OTHERS = {"model_tag", "api_server_count", "host", "port"}
_NAMED_VALUE, _KEYED_VALUE = (rf"{name}(?:'([^'\n]{{1,300}})'|([\w./+-]+))" for name in (r"\b(\w+)=", r"'(\w+)': "))
_SGLANG_ARGS = re.compile(r"server_args=ServerArgs\(([^\n]{0,8000})")
_SGLANG_KEYS = (
    "model_path tp_size pp_size dp_size mem_fraction_static context_length quantization kv_cache_dtype dtype "
    "chunked_prefill_size max_running_requests"
)
_LLAMA_FILE = re.compile(r"loaded meta data with [^\n]{0,100} from (\S[^\n]{0,400}?) \(version")
_LLAMA_VALUES = (
    ("-c", re.compile(r"n_ctx +[=:] +(\d+)")),
    ("-ub", re.compile(r"n_ubatch +[=:] +(\d+)")),
    ("-b", re.compile(r"n_batch +[=:] +(\d+)")),
    ("-ngl", re.compile(r"offloaded (\d+)/\d+ layers to GPU")),
    ("-ctk", re.compile(r"\bK \((\w+)\): +[\d.]+ MiB")),
    ("-ctv", re.compile(r"\bV \((\w+)\): +[\d.]+ MiB")),
)
_TRAINER = (
    ("--per_device_train_batch_size", re.compile(r"Instantaneous batch size per device = (\d+)")),
    ("--gradient_accumulation_steps", re.compile(r"Gradient Accumulation steps = (\d+)")),
)
_MODEL = re.compile(
    r"(?:_name_or_path['\"]?: ['\"]|model_name_or_path[=: '\"]+|base_model[=: '\"]+|from_pretrained\(['\"])"
    r"([\w.-]+/[\w.-]+)"
)

_FRAME = re.compile(
    r'File "([^"\n]{1,4096})", line (\d{1,15})|^\s*(?:> )?([\w./\\-]{1,400}\.py):(\d{1,9})(?=[: ])', re.MULTILINE
)
_INSTALLED = ("site-packages", "dist-packages", "/lib/python", "\\lib\\", "<frozen", "<string>", "python_embeded")
# Checkouts of frameworks, whose frames are not the user's code either.
_FRAMEWORK = re.compile(
    r"(?:^|[/\\])(?:vllm|sglang|sgl-workspace|text_generation_server|tensorrt_llm|ComfyUI|comfy|deepspeed|accelerate|transformers|"
    r"axolotl|llamafactory|LLaMA-Factory|trl|diffusers|torch|lightning|peft|unsloth|ollama)(?:[/\\]|$)"
)


class JobContext(NamedTuple):
    """The job that a log names; empty or None if unknown."""

    program: str = ""
    command: str = ""
    gpu_name: str = ""
    rank: int | None = None
    total: int | None = None
    free: int | None = None
    windows: bool = False


def job_of(text: str) -> JobContext:
    program = next((name for name, sign in _SIGNS if sign.search(text)), "")
    gpu_name = next((match[1].strip() for name in _GPU_NAMES if (match := name.search(text))), "")
    ranks = {int(next(filter(None, match.groups()))) for match in _RANK.finditer(text)}
    sizes: dict[str, int] = {}
    for name, pattern in _DEVICES:
        if name not in sizes and (match := pattern.search(text)):
            value = match[1].replace(" MB", "MiB")
            try:
                sizes[name] = int(value) if value.isdigit() else parse_size(value)
            except UserError:
                continue
    return JobContext(
        program=program,
        command=command_in(text, program),
        gpu_name=gpu_name,
        rank=min(ranks) if len(ranks) == 1 else None,
        total=sizes.get("total"),
        free=sizes.get("free"),
        windows=re.search(r"[A-Z]:\\", text) is not None,
    )


def command_in(text: str, program: str) -> str:
    """Return the job's command line as typed, or made from what the program printed at its start."""
    if program == "vLLM" and (args := _vllm_options(text)):
        return args
    if program == "SGLang" and (match := _SGLANG_ARGS.search(text)):
        values = dict(re.findall(r"(\w+)=('[^']*'|[\w.+-]+)", match[1]))
        words = ["sglang", "serve"]
        for name in _SGLANG_KEYS.split():
            value = values.get(name, "None").strip("'")
            if value not in {"None", "auto"}:
                words += [f"--{name.replace('_size', '') if name == 'tp_size' else name}".replace("_", "-"), value]
        words += ["--disable-cuda-graph"] if values.get("disable_cuda_graph") == "True" else []
        return shlex.join(words)
    if match := _LLAMA_FILE.search(text):
        words = ["llama-server", "-m", match[1]]
        for option, pattern in _LLAMA_VALUES:
            words += [option, value[1]] if (value := pattern.search(text)) else []
        return shlex.join(words)
    if match := _STARTED.search(text):
        return match[1].strip()
    pairs = [(option, value[1]) for option, pattern in _TRAINER if (value := pattern.search(text))]
    model = _MODEL.search(text)
    if model and pairs:
        return shlex.join(
            ["python", "train.py", "--model_name_or_path", model[1], *(word for pair in pairs for word in pair)]
        )
    return ""


def _vllm_options(text: str) -> str:
    """Return the command that vLLM's log states, with its release; of two lines that state a value the first counts."""
    values: dict[str, object] = {}
    for name, quoted, plain in re.findall(_NAMED_VALUE, "\n".join(_VLLM_CONFIG.findall(text))):
        value, key = quoted or plain, _VLLM_RENAMED.get(name, name)
        if key in _VLLM_KEYS.split() and value not in {"None", "auto", "False"}:
            values.setdefault(key, value == "True" or value)
    if match := _VLLM_ARGS.search(text):
        try:
            given = ast.literal_eval(match[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # an object is among them
            given = {key: quoted or plain for key, quoted, plain in re.findall(_KEYED_VALUE, match[1])[::-1]}
        values |= {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
    if match := _VLLM_CHUNK.search(text):
        values.setdefault("max_num_batched_tokens", match[1])
    model = values.pop("model", None) or values.pop("model_tag", None)
    if not model:
        return ""
    words = ["vllm", "serve", str(model)]
    for key, value in values.items():
        option = f"--{key.replace('_', '-')}"
        if value is True or value == "True":
            words.append(option)
        elif isinstance(value, (int, float, str)) and value not in {False, "False", "None"} and key not in _VLLM_OTHERS:
            words += [option, str(value)]
    words += ["--engine-version", match[1]] if (match := _VLLM_RELEASE.search(text)) else []
    return shlex.join(words)


def user_line(text: str) -> str:
    """Return the deepest frame of the user's own code, else the deepest one of a framework's, as `FILE:LINE`."""
    own = framework = ""
    for quoted, number, plain, plain_number in _FRAME.findall(text):
        path, line = quoted or plain, number or plain_number
        if _FRAMEWORK.search(path):
            torch = re.search(r"[/\\](?:torch|lightning|accelerate)[/\\]", path)
            framework = framework if torch else f"{path}:{line}"
        elif not any(part in path for part in _INSTALLED):
            own = f"{path}:{line}"
    return own or framework
