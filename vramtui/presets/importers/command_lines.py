"""Command lines: a job's program, script and options however they are written; and the one command that starts a job in
what people paste, batch scripts and compose files.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable

LONGEST = 1 << 16
_SET = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)=(.*)", re.DOTALL)
_FLAG = re.compile(r"--?[A-Za-z][\w.-]*")
_TWO_WORDS = re.compile(r"--?[A-Za-z][\w-]* +[^\s{]\S*")
_PYTHON = re.compile(r"python[\d.]*")
_PAIRED = {"-ot", "--override-tensor"}  # whose values are themselves NAME=VALUE


class Option(msgspec.Struct, frozen=True):
    """One option: `name` without dashes and with underscores, `value` (empty for a switch), and `flag` as written."""

    name: str
    value: str
    flag: str


class CommandLine(msgspec.Struct, frozen=True):
    """All `words` of a command line; the `script` (a file or module without its folder, or the program itself); the
    `options` in their order.
    """

    words: tuple[str, ...]
    script: str
    options: tuple[Option, ...]

    def find(self, *names: str) -> Option | None:
        """Return the last option with one of the names, which is the one in force."""
        return next((option for option in reversed(self.options) if option.name in names), None)


def read_command_line(command: str) -> CommandLine:
    """Parse a command line; one that no shell would accept is split at its spaces."""
    command = command[:LONGEST]
    try:
        words = tuple(shlex.split(command))
    except ValueError:
        words = tuple(command.split())
    options: list[Option] = []
    for before, word, following in zip(("", *words), words, (*words[1:], ""), strict=False):
        pair = _SET.fullmatch(word) if before not in _PAIRED else None
        if pair and "/" not in pair[1]:
            options.append(Option(pair[1].lstrip("-").replace("-", "_"), pair[2], word))
        elif _FLAG.fullmatch(word):
            is_next = _FLAG.fullmatch(following) or (_SET.fullmatch(following) and word not in _PAIRED)
            value = "" if is_next else following
            options.append(Option(word.lstrip("-").replace("-", "_"), value, f"{word} {value}".rstrip()))
    return CommandLine(words, _script(words), tuple(options))


def _script(words: tuple[str, ...]) -> str:
    """The first Python file, the module after `-m`, torchtune's recipe, or the program that an interpreter runs."""
    names = [PurePath(word).name for word in words]
    files = [name for name in names if name.endswith(".py") and not name.startswith("-")]
    if files:
        return files[0]
    for number, name in enumerate(names[:-1]):
        launcher = names[number - 1] if number else ""
        if name == "-m" and (_PYTHON.fullmatch(launcher) or launcher in {"torchrun", "launch"}):
            return names[number + 1]
    if names[:2] == ["tune", "run"]:
        return next((name for name in names[2:] if "_" in name and not _FLAG.fullmatch(name)), "tune")
    programs = [name for name in names if not _FLAG.fullmatch(name)]
    behind = programs[1:] if programs and _PYTHON.fullmatch(programs[0]) else programs
    return behind[0] if behind and not _SET.fullmatch(behind[0]) else ""


_SERVERS = r"vllm|sglang|llama-(?:server|cli|run|bench)|ollama|text-generation-launcher|koboldcpp(?:\.py)?|llamafile"
_STARTS = re.compile(
    rf"{_SERVERS}|torchrun|accelerate|deepspeed|tune|trl|axolotl|llamafactory-cli|lmf|swift|trtllm-serve"
)
_RUNS = re.compile(r"python[\d.]*|.+\.py")
_SHELL = re.compile(r"(?:ba|z|da)?sh")
_ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?::?-([^}]*))?\})")
_ENDS = re.compile(r"[;&|]+")
# Commands whose words are not a job's, and options of container runtimes whose value is not an image.
_OTHERS = {
    "cd", "source", ".", "pip", "pip3", "module", "echo", "mkdir", "git", "which", "curl", "kill", "ls", "cp", "hf",
}  # fmt: skip
_VALUED = {"-v", "--volume", "--name", "--mount", "--network", "-w", "--workdir", "-p", "-n"}
# The command that the entry point of an image begins with, by a word of the image's name.
_IMAGES = {
    "text-generation-inference": "text-generation-launcher",
    "vllm": "vllm serve",
    "sglang": "python -m sglang.launch_server",
    "llama.cpp": "llama-server",
    "ollama": "ollama",
}
# Variables that are options: of llama.cpp (common/arg.cpp, b7000) and of TGI (launcher/src/main.rs, 3.3).
_LLAMA_ARGS = {"N_PARALLEL": "parallel", "UBATCH": "ubatch-size"}
_TGI_ARGS = re.compile(
    r"MODEL_ID|NUM_SHARD|QUANTIZE|KV_CACHE_DTYPE|CUDA_(?:MEMORY_FRACTION|GRAPHS)|MAX_(?!WAIT|STOP)\w+"
)
# Variables of other programs that are passed on; the rest of an environment says nothing of memory.
OLLAMA = ("OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL", "OLLAMA_FLASH_ATTENTION", "OLLAMA_KV_CACHE_TYPE")
_COUNT = re.compile(rf"(?:VLLM|SGLANG|PYTORCH|CUDA)_\w+|{'|'.join(OLLAMA)}")
_GRES = re.compile(r"(?:--gres|--gpus-per-node|--gpus|-G)[= ]\s*(?:gpu:?)?(?:([\w.-]*[A-Za-z][\w.-]*):?)?(\d+)?")
_ON_GPU = re.compile(r"nvidia|gpu|cuda|inference", re.IGNORECASE)


class Pasted(msgspec.Struct, frozen=True):
    """The command that starts a job, with the variables that count behind it, the GPUs that its script asks for, and
    other services of its file that use a GPU.
    """

    command: str
    gpus: int | None = None
    card: str = ""
    others: tuple[str, ...] = ()


def is_command(text: str) -> bool:
    """Return whether a text is a command with its options, not a name or a path."""
    words = text.split()
    own = next((word for word in words if not _ASSIGNED.fullmatch(word)), "")
    known = _STARTS.fullmatch(PurePath(own).name) or own in {"docker", "podman", "srun", "sudo", "env", "nohup", "uv"}
    has_options = "serve" in words or any(word.startswith("-") for word in words)
    return len(words) > 1 and bool(known or own != words[0] or has_options)


def command_in(text: str) -> Pasted:
    """Find the last command of a text that starts a server or a training, else the last Python program.

    Raises:
        UserError: there is none, or it names no model where it needs one.
    """
    variables: dict[str, str] = {}
    card, gpus, nodes, tasks = "", None, 1, 0
    for line in re.findall(r"^#SBATCH\s+(.*)", text, re.MULTILINE):
        if stated := _GRES.search(line):
            card, gpus = stated[1] or card, int(stated[2] or 1)
        nodes = int(match[1]) if (match := re.search(r"(?:--nodes|-N)[= ]\s*(\d+)", line)) else nodes
        tasks = int(match[1]) if (match := re.search(r"--ntasks-per-node[= ]\s*(\d+)", line)) else tasks
    if gpus is not None:
        variables |= dict.fromkeys(("SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE"), str(gpus))
        variables |= dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), str(nodes))
        variables["SLURM_NTASKS"] = str(nodes * (tasks or gpus))
    start, is_launcher, used = [""], False, ""
    for words in _segments(text):
        flat: list[str] = []
        for word in words:  # a variable may hold several options
            plain = _with_variables(word, variables)
            several = word != plain and _VARIABLE.fullmatch(word) and plain.startswith("-")
            flat += shlex.split(plain) if several else [plain]
        started = list(_started(flat, variables))
        if started and (launches := _STARTS.fullmatch(PurePath(started[0]).name) is not None) >= is_launcher:
            start, is_launcher, used = started, launches, " ".join(words)
    if not start[0]:
        servers = "vLLM, SGLang, TGI, llama.cpp and Ollama are"
        raise UserError(f"{printable(text.strip()[:60])!r} starts no training or server that is known; {servers}")
    tag = re.search(r"vllm[\w-]*:v?(\d+\.\d+(?:\.\d+)?)\b", text)  # of an image, which names vLLM's release
    release = [f"engine_version={tag[1]}"] if tag is not None else []
    for match in _VARIABLE.finditer(used):  # one that an option took counts there
        variables.pop(match[1] or match[2], None)
    command = shlex.join([*_with_options(start, variables), *release])
    return Pasted(command, None if gpus is None else gpus * nodes, card)


def service_in(tables: Mapping[str, Any], name: str, service: str = "") -> Pasted:
    """The command of a compose file's service; `service` is needed only if several serve models.

    Raises:
        UserError: there is no such service, none serves a model, or several do.
    """
    services = {key: value for key, value in tables["services"].items() if isinstance(value, Mapping)}
    commands = {key: words for key, value in services.items() if (words := _service_words(value))}
    if not commands:
        raise UserError(f"{name} has no service that runs vLLM, SGLang, TGI, llama.cpp or Ollama")
    if service not in commands and (service or len(commands) > 1):
        first = next(iter(commands))
        servers = ", ".join(f"{key} ({words[0]})" for key, words in commands.items())
        wrong = f"{name} has no model server called {service}{nearest(service, commands)}; it has" if service else ""
        raise UserError(f"{wrong or f'{name} has several model servers:'} {servers}; choose one as {name}:{first}")
    chosen = service or next(iter(commands))
    stated = services[chosen].get("environment") or {}
    pairs = stated.items() if isinstance(stated, Mapping) else (str(one).partition("=")[::2] for one in stated)
    own = f"{services[chosen].get('entrypoint')} {services[chosen].get('command')}"
    variables = [f"{key}={_with_variables(str(value), {})}" for key, value in pairs if f"${{{key}:-" not in own]
    image = f"# {services[chosen].get('image', '')}\n"
    pasted = command_in(image + shlex.join([*variables, *commands[chosen]]))
    counts = re.findall(r"'count': (\d+)", str(services[chosen].get("deploy")))
    others = tuple(key for key, value in services.items() if key != chosen and _ON_GPU.search(str(value)))
    return msgspec.structs.replace(pasted, gpus=int(counts[0]) if counts else pasted.gpus, others=others)


def containers_in(manifest: object) -> dict[str, dict[str, Any]]:
    """The containers of a Kubernetes manifest, wherever they stand in it, as services of a compose file."""
    inner = manifest.values() if isinstance(manifest, Mapping) else manifest if isinstance(manifest, list) else ()
    services = {name: one for part in inner for name, one in containers_in(part).items()}
    listed = manifest.get("containers") if isinstance(manifest, Mapping) else None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, Mapping) and "image" in one:
            variables = [each for each in one.get("env") or () if isinstance(each, Mapping) and "value" in each]
            count = re.search(r"'nvidia\.com/gpu': '?(\d+)", str(one.get("resources")))
            services[str(one.get("name"))] = {
                "image": one["image"], "entrypoint": one.get("command"), "command": one.get("args"),
                "environment": {each.get("name"): each["value"] for each in variables},
                "deploy": {"count": int(count[1])} if count else None,
            }  # fmt: skip
    return services


def _service_words(service: Mapping[str, Any]) -> list[str]:
    """The words that a service runs; empty if it does not serve a model."""
    image = str(service.get("image", "")).lower()
    program = next((program for word, program in _IMAGES.items() if word in image), "")
    own, rest = (_words(service.get(key)) for key in ("entrypoint", "command"))
    words = own + rest
    if any(re.search(rf"(?:^|[\s/])(?:{_SERVERS}|sglang\.launch_server|vllm\.entrypoints)", word) for word in words):
        return words
    return [*program.split(), *rest] if program else []


def _words(value: object) -> list[str]:
    parts = map(str, value) if isinstance(value, list) else shlex.split(str(value or ""))
    # `- --port 80` in a list is two words; a script's lines are one after the other.
    split = (shlex.split(part) if _TWO_WORDS.fullmatch(part) else [part.strip()] for part in parts)
    return [_with_variables(word.replace("\\\n", " ").replace("\n", "; "), {}) for words in split for word in words]


def _segments(text: str) -> Iterator[list[str]]:
    """The simple commands of a script, in their order, without comments and redirections."""
    lines = re.sub(r"\\\r?\n", " ", text)
    for line in lines.splitlines():
        if line.lstrip().startswith("#"):
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>")
        lexer.whitespace_split, lexer.commenters = True, ""
        try:
            words = list(lexer)
        except ValueError:
            words = line.split()
        segment: list[str] = []
        at = 0
        while at < len(words):
            if _ENDS.fullmatch(words[at]):
                yield segment
                segment = []
            elif re.fullmatch(r"[<>&]*[<>][<>&]*", words[at]):
                at += 1  # the file, or the other stream
                segment = segment[:-1] if segment[-1:] == ["2"] and words[at - 1] == ">&" else segment
            else:
                segment.append(words[at])
            at += 1
        yield segment


def _started(words: Sequence[str], variables: dict[str, str]) -> Iterator[str]:
    """The words from a program on that starts a job; assignments before it go into `variables`."""
    if words and words[0] in _OTHERS:
        return
    for at, word in enumerate(words):
        before = words[at - 1] if at else ""
        name, image = PurePath(word).name, word.lower().rpartition("@")[0] or word.lower()
        if assigned := _ASSIGNED.fullmatch(word.removeprefix("--env=")):
            variables[assigned[1]] = assigned[2]
        elif _SHELL.fullmatch(name) and at + 2 < len(words) and words[at + 1].endswith("c"):
            script = _with_variables(words[at + 2], variables)
            yield from next((list(_started(one, variables)) for one in _segments(script) if _is_start(one)), [])
            return
        elif _STARTS.fullmatch(name) or (_RUNS.fullmatch(name) and not before.startswith("-")):
            if not {"-c", "venv", "pip"} & {*words[at + 1 : at + 3]}:
                yield from words[at:]
            return
        elif (
            word[:1] not in "-/~.$"
            and before not in _VALUED
            and (program := next((_IMAGES[key] for key in _IMAGES if key in image), ""))
        ):
            rest = words[at + 1 :]
            yield from rest if rest and _is_start(rest[:1]) else (*program.split(), *rest)
            return


def _is_start(words: Sequence[str]) -> bool:
    return any(_STARTS.fullmatch(PurePath(word).name) or _RUNS.fullmatch(PurePath(word).name) for word in words)


def _with_variables(word: str, variables: Mapping[str, str]) -> str:
    """Replace variables whose values or defaults are stated."""
    return _VARIABLE.sub(
        lambda match: variables.get(match[1] or match[2]) or (match[0] if match[3] is None else match[3]), word
    )


def _with_options(words: list[str], variables: Mapping[str, str]) -> Iterator[str]:
    """The words with the variables that count: as options of their own program, or behind them as NAME=value."""
    program = PurePath(words[0]).name
    if program == "ollama":  # `ollama run` starts a runner, which is llama.cpp
        named = re.search(r"\b(?:run|pull)\s+([^\s;&|-]\S*)", " ".join(words))
        if named is None:
            raise UserError("ollama loads models on request; name one: `ollama run llama3.1:8b`")
        words = ["ollama", "runner", "-m", named[1] if re.search(r"[:/]", named[1]) else f"{named[1]}:latest"]
    yield words[0]
    for key, value in variables.items():
        if program.startswith("llama-") and key.startswith("LLAMA_ARG_"):
            plain = key.removeprefix("LLAMA_ARG_")
            yield from (f"--{_LLAMA_ARGS.get(plain, plain.lower().replace('_', '-'))}", value)
        elif program == "text-generation-launcher" and _TGI_ARGS.fullmatch(key):
            yield from (f"--{key.lower().replace('_', '-')}", value)
    yield from words[1:]
    yield from (f"{key}={value}" for key, value in variables.items() if _COUNT.fullmatch(key))
