"""The job that a log names: program, command line, GPU, rank, and the line of the user's code."""

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import parse_size

_VLLM_KEYS = (
    "model max_model_len max_num_seqs max_num_batched_tokens gpu_memory_utilization dtype quantization kv_cache_dtype "
    "tensor_parallel_size pipeline_parallel_size data_parallel_size enforce_eager cpu_offload_gb"
)
_VLLM_RENAMED = {"model_tag": "model", "max_seq_len": "max_model_len"}
_VLLM_OTHERS = {"model_tag", "api_server_count", "host", "port"}
_NAMED_VALUE, _KEYED_VALUE = (rf"{name}(?:'([^'\n]{{1,300}})'|([\w./+-]+))" for name in (r"\b(\w+)=", r"'(\w+)': "))
_SGLANG_KEYS = (
    "model_path tp_size pp_size dp_size mem_fraction_static context_length quantization kv_cache_dtype dtype "
    "chunked_prefill_size max_running_requests"
)
_INSTALLED = ("site-packages", "dist-packages", "/lib/python", "\\lib\\", "<frozen", "<string>", "python_embeded")


@cache
def _patterns() -> tuple[dict[str, "re.Pattern[str]"], dict[str, list[tuple[str, "re.Pattern[str]"]]]]:
    """The patterns of `programs.toml` by their names, and its lists of named patterns."""
    read = toml.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
    one = {name: re.compile(text, re.MULTILINE) for name, text in read.items() if isinstance(text, str)}
    rows = {name: rows for name, rows in read.items() if isinstance(rows, list)}
    return one, {name: [(key, re.compile(text, re.MULTILINE)) for key, text in rows[name]] for name in rows}


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
    one, rows = _patterns()
    program = next((name for name, sign in rows["programs"] if sign.search(text)), "")
    gpu_name = next((match[1].strip() for _, name in rows["gpu_names"] if (match := name.search(text))), "")
    ranks = {int(next(filter(None, match.groups()))) for match in one["rank"].finditer(text)}
    sizes: dict[str, int] = {}
    for name, pattern in rows["sizes"]:
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
    one, rows = _patterns()
    if program == "vLLM" and (args := _vllm_options(text)):
        return args
    if program == "SGLang" and (match := one["sglang_args"].search(text)):
        values = dict(re.findall(r"(\w+)=('[^']*'|[\w.+-]+)", match[1]))
        words = ["sglang", "serve"]
        for name in _SGLANG_KEYS.split():
            value = values.get(name, "None").strip("'")
            if value not in {"None", "auto"}:
                words += [f"--{name.replace('_size', '') if name == 'tp_size' else name}".replace("_", "-"), value]
        words += ["--disable-cuda-graph"] if values.get("disable_cuda_graph") == "True" else []
        return shlex.join(words)
    if match := one["llama_file"].search(text):
        words = ["llama-server", "-m", match[1]]
        for option, pattern in rows["llama_values"]:
            words += [option, value[1]] if (value := pattern.search(text)) else []
        return shlex.join(words)
    if match := one["started"].search(text):
        return match[1].strip()
    pairs = [(option, value[1]) for option, pattern in rows["trainer_values"] if (value := pattern.search(text))]
    model = one["model"].search(text)
    if model and pairs:
        return shlex.join(
            ["python", "train.py", "--model_name_or_path", model[1], *(word for pair in pairs for word in pair)]
        )
    return ""


def _vllm_options(text: str) -> str:
    """Return the command that vLLM's log states, with its release; of two lines that state a value the first counts."""
    one, values = _patterns()[0], dict[str, object]()
    for name, quoted, plain in re.findall(_NAMED_VALUE, "\n".join(one["vllm_config"].findall(text))):
        value, key = quoted or plain, _VLLM_RENAMED.get(name, name)
        if key in _VLLM_KEYS.split() and value not in {"None", "auto", "False"}:
            values.setdefault(key, value == "True" or value)
    if match := one["vllm_args"].search(text):
        try:
            given = ast.literal_eval(match[1])
        except (ValueError, SyntaxError, MemoryError, RecursionError):  # an object is among them
            given = {key: quoted or plain for key, quoted, plain in re.findall(_KEYED_VALUE, match[1])[::-1]}
        values |= {str(key): value for key, value in given.items()} if isinstance(given, dict) else {}
    if match := one["vllm_chunk"].search(text):
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
    words += ["--engine-version", match[1]] if (match := one["vllm_release"].search(text)) else []
    return shlex.join(words)


def user_line(text: str) -> str:
    """Return the deepest frame of the user's own code, else the deepest one of a framework's, as `FILE:LINE`."""
    one, own, framework = _patterns()[0], "", ""
    for quoted, number, plain, plain_number in one["frame"].findall(text):
        path, line = quoted or plain, number or plain_number
        if one["framework"].search(path):
            torch = re.search(r"[/\\](?:torch|lightning|accelerate)[/\\]", path)
            framework = framework if torch else f"{path}:{line}"
        elif not any(part in path for part in _INSTALLED):
            own = f"{path}:{line}"
    return own or framework
