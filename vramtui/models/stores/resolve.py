"""Names of models: spellings of people and other programs, those known on the Hub offline, and what each names."""

import os
import re
from collections.abc import Collection
from enum import Enum, auto
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import msgspec

from vramtui.core.base import toml
from vramtui.models.named_files import exists, is_folder, is_plain_file, path_named
from vramtui.models.stores.local_models import LONGEST, find_model, without_address

# Owners that publish others' weights again under the same name, tensor by tensor the same shapes.
MIRRORS = frozenset({"unsloth", "nousresearch"})
# How the Hub's cache calls a repository's folder: `models--OWNER--NAME/snapshots/COMMIT`.
_CACHED = re.compile(r"models--([\w.-]+?)--([\w.-]+)")


class HubConfig(msgspec.Struct, frozen=True):
    """Sizes in a config.json on the Hub.

    Attributes:
        names: models with this very config.
        parameters: of the module that transformers builds of it, or as its card has it where transformers has none.
        config: the keys that shape it.
    """

    names: tuple[str, ...]
    parameters: int
    config: dict[str, Any]


def known_on_hub(name: str) -> tuple[str, str | HubConfig | None]:
    """`owner/name` as the Hub writes it, and the key of the bundled preset of this very model, or its config; None
    where neither is known.

    Args:
        name: `owner/name`, in letters of either case, or its address on huggingface.co.
    """
    plain = without_address(name).rstrip("/").replace("___", ".")  # ModelScope's folders
    known = names_on_hub().get(plain.lower()) or configs_on_hub().get(plain.lower())
    if known is not None:
        return known
    owner, _, tail = plain.partition("/")
    original = _by_tail().get(tail.lower()) if owner.lower() in MIRRORS else None
    return plain, original[1] if original is not None else None


def known_names() -> tuple[str, ...]:
    """Every name that is known here as the Hub writes it, and without its owner where that is enough."""
    whole = [name for name, _ in (*names_on_hub().values(), *configs_on_hub().values())]
    return (*whole, *(name.partition("/")[2] for name, _ in _by_tail().values()))


def known_by_folder(path: str) -> tuple[str, str | HubConfig | None]:
    """The known config for the name of a folder, `/data/models/Qwen3-8B` or one of the Hub's cache.

    What lies in it may be another model all the same: this is for folders whose files cannot be read.
    """
    cached = _CACHED.search(path)
    if cached is not None:
        return known_on_hub(f"{cached[1]}/{cached[2]}")
    return _by_tail().get(PurePath(path).name.lower().replace("___", "."), (path, None))  # ModelScope's ___


@lru_cache(1)
def names_on_hub() -> dict[str, tuple[str, str]]:
    """The name as the Hub writes it and the key of the bundled preset, by the name in lower case."""
    text = Path(__file__).with_name("hub_ids.toml").read_text(encoding="utf-8")
    return {name.lower(): (name, key) for key, names in toml.loads(text).items() for name in names}


@lru_cache(1)
def configs_on_hub() -> dict[str, tuple[str, HubConfig]]:
    """The name as the Hub writes it and its config, by the name in lower case."""
    text = Path(__file__).with_name("hub_configs.json").read_bytes()
    rows = msgspec.json.decode(text, type=tuple[HubConfig, ...])
    return {name.lower(): (name, row) for row in rows for name in row.names}


@lru_cache(1)
def _by_tail() -> dict[str, tuple[str, str | HubConfig]]:
    """These pairs by the name without its owner in lower case, where all owners of a name mean one model."""
    tails: dict[str, list[tuple[str, str | HubConfig]]] = {}
    everything: dict[str, tuple[str, str | HubConfig]] = {**names_on_hub(), **configs_on_hub()}
    for lower, known in everything.items():
        tails.setdefault(lower.partition("/")[2], []).append(known)
    return {tail: same[0] for tail, same in tails.items() if all(one[1] is same[0][1] for one in same)}


# The most popular models of each family first; each name is known without the network.
POPULAR = tuple(Path(__file__).with_name("popular_names.txt").read_text(encoding="utf-8").split())
# What a name of a trained model may have behind it, the usual one first.
_ENDINGS = ("", "instruct", "it", "chat", "hf", "base", "instruct2507", "bf16", "diffusers")
_GGUF = re.compile(r"(?:[\w.-]+/)?([\w.-]+?)-GGUF(?::([\w.-]+))?", re.IGNORECASE)
_KINDS = r"(?:UD-)?(?:[IT]?Q\d\w*|MXFP4\w*|BF16|F16)"
_FILE = re.compile(rf"(?:[^\n]*/)?([\w.-]+?)[-.]({_KINDS})(?:-\d{{5}}-of-\d{{5}})?\.gguf", re.IGNORECASE)
_TAG = re.compile(r"([a-z][\w.-]*):([\w.-]+)")
_TYPE = re.compile(r"(?:i?q\d\w*|mxfp4|fp16|f16|bf16)", re.IGNORECASE)
# A repository of a model that somebody quantized or converted, by the end of its name.
_QUANTIZED = re.compile(
    r"(.+?)(?:-quantized)?[-_.](?:(?P<fp8>fp8)|(?P<nvfp4>nvfp4)|(?P<nf4>(?:unsloth-)?bnb-4bit)|(?P<int8>(?:gptq-)?int8|w8a8)|"
    r"(?P<int4>(?:awq|gptq|autoround|int4|w4a16|4bit))|b?f(?:p|loat)?16)(?:[-_.][\w.-]+)?",
    re.IGNORECASE,
)
# What owners' quantized models keep in 16 bits, by their config.json.
_UNQUANTIZED = {
    re.compile(r"meta-llama/.*-fp8", re.IGNORECASE): "attention and outer layers",
    re.compile(r"nvidia/gemma-4-26b-a4b-nvfp4", re.IGNORECASE): "all but experts",
    re.compile(r"(?:nvidia/gemma-4|redhatai/qwen3\.[5-8]-\d+b-a\d+b)-.*nvfp4", re.IGNORECASE): "attention",
}
USUAL_TYPE = "Q4_K_M"  # of Ollama's library and of `llama-server -hf`


class OtherSpelling(NamedTuple):
    """A known model with the type of its weights, and the modules that are not quantized; empty if none are named."""

    name: str
    type: str = ""
    program: str = ""
    unquantized: str = ""


def other_spelling(text: str) -> OtherSpelling | None:
    """Return the one known model that `text` spells otherwise; None if it could be none or several."""
    if (address := without_address(text)) != text:
        spelling = other_spelling(address) or OtherSpelling(address)
        # `ollama run hf.co/OWNER/NAME-GGUF:TYPE`
        return spelling._replace(program="Ollama") if spelling.program and text.startswith("hf.co/") else spelling
    if file := _FILE.fullmatch(text):
        name = _find_name(file[1]) or _find_name(file[1].partition("_")[2])  # OWNER_NAME
        return None if name is None else OtherSpelling(name, file[2], "llama.cpp")
    if text.endswith((".safetensors", ".ckpt")):  # as users of ComfyUI and kohya name a model
        name = _find_name(PurePath(text).stem)
        return other_spelling(PurePath(text).stem) if name is None else OtherSpelling(name)
    if repository := _GGUF.fullmatch(text):
        name = _find_name(repository[1])
        usual = "MXFP4" if name is not None and name.startswith("gpt-oss") else USUAL_TYPE  # as it was published
        return None if name is None else OtherSpelling(name, repository[2] or usual, "llama.cpp")
    if tag := _TAG.fullmatch(text):
        words = tag[2].split("-")
        kind = next((word for word in words if _TYPE.fullmatch(word)), "")
        named, usual = ollama_tags().get(text) or ollama_tags().get(f"{tag[1]}:{words[0]}") or ("", USUAL_TYPE)
        name = named or _find_name(tag[1] + "".join(word for word in words if word != kind))
        return None if name is None else OtherSpelling(name, kind or usual, "Ollama")
    if quantized := _QUANTIZED.fullmatch(text):
        plain = quantized[1].rpartition("/")[2].lower()
        others = quantized[1].partition("_")[2], plain, plain.removesuffix("-text")  # OWNER_NAME, OWNER/NAME
        name = next((name for part in (quantized[1], *others) if (name := _find_name(part))), None)
        unquantized = next((words for repository, words in _UNQUANTIZED.items() if repository.fullmatch(text)), "")
        kind = quantized.lastgroup or ""
        # Unsloth quantizes the scales again (bnb_4bit_use_double_quant of its config.json).
        kind = "nf4-double" if kind == "nf4" and text.lower().startswith("unsloth/") else kind
        return None if name is None else OtherSpelling(name, kind, "", unquantized)
    # Without a size ("kimi-k2") the words name a family; with one, "llama 3 8b" is the most popular with them all.
    if not re.search(r"\d[bB]\b", text):
        name = _by_letters().get(letters_of(text))
    elif (name := _find_name(text)) is None and "/" not in text:
        words, names = _words(text), (*POPULAR, *sorted(known_names(), key=len))
        name = next((name for name in names if words <= _words(name)), None)
    return None if name is None else OtherSpelling(name)


def _words(name: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)*[bm]?(?![a-z])|[a-z]+|\d+", name.lower()))


def letters_of(name: str) -> str:
    """Return a name's letters and digits, without the marks between them and in lower case."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


@lru_cache(maxsize=1)
def ollama_tags() -> dict[str, tuple[str, str]]:
    """The model and the type of its file, by Ollama's tag."""
    table = toml.loads(Path(__file__).with_name("ollama_tags.toml").read_text(encoding="utf-8"))
    return {tag: (*value.split(), USUAL_TYPE)[:2] for tag, value in table.items()}


@lru_cache(maxsize=1)
def _by_letters() -> dict[str, str]:
    names = {letters_of(name): name for name in reversed(known_names()) if "/" not in name}
    # Ollama's tags leave out a model's active parameters: `qwen3:30b` is Qwen3-30B-A3B.
    return {letters_of(re.sub(r"-A[\d.]+B", "", name)): name for name in names.values()} | names


def _find_name(name: str) -> str | None:
    letters = re.sub("^sd(?=xl|3)|^(?=v15)", "stablediffusion", letters_of(name)).removesuffix("prunedemaonly")
    if not any(letter.isdigit() for letter in letters):
        return None  # "llama" by itself names a family
    known = _by_letters()
    spelt = (f"{start}{letters}{end}" for start in ("", "meta") for end in _ENDINGS)  # Meta-Llama-3-8B
    return next((known[one] for one in spelt if one in known), None)


# How Hugging Face's ids and Ollama's names are written, where nothing is at that path.
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(?<!\.toml)(?:[@:][\w.-]+)*|[A-Za-z0-9][\w.-]*:[\w.-]+")
NET_NAME = re.compile(r"(?:timm/)?[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?")
TIMM = "timm/"


class NameKind(Enum):
    """The sorts of things that a text can name."""

    PRESET = auto()
    MODEL = auto()  # a model's file, or a folder with one
    STORED = auto()  # a model in a local store
    NET = auto()  # of torchvision or timm
    SAME_AS_PRESET = auto()  # a model on the Hub that a bundled preset describes
    HUB_CONFIG = auto()  # a model on the Hub whose config is known
    PRESET_FILE = auto()
    REPOSITORY = auto()  # written as a model's id is, and not known here
    SCRIPT = auto()
    FOLDER = auto()  # without a model
    OTHER_FILE = auto()
    UNKNOWN = auto()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The thing that a text names.

    Attributes:
        kind: which sort of thing.
        name: a preset's key, a model's name as the Hub or its store writes it, a net's name; else the text.
        path: the file or folder, where it is one.
        preset: the key of the bundled preset, of SAME_AS_PRESET.
        config: what is known of its config, of HUB_CONFIG.
    """

    kind: NameKind
    name: str
    path: Path | None = None
    preset: str = ""
    config: HubConfig | None = None


def resolve(text: str, keys: Collection[str] = ()) -> Resolved:
    """Resolve `text`; the kind is UNKNOWN if no case takes it.

    Args:
        text: as a person, a preset or a command line says it.
        keys: of the presets that there are.

    Raises:
        UserError: it is there, but holds no model or several that `text` does not tell apart.
    """
    if text in keys:  # a person's own presets stand above everything
        return Resolved(kind=NameKind.PRESET, name=text)
    if (model := find_model(text)) is not None:  # what is on this machine is what would run
        kind = NameKind.STORED if model.store else NameKind.MODEL
        return Resolved(kind=kind, name=model.name, path=model.path)
    known = _net(text) or (None if len(text) > LONGEST or exists(text) else _on_hub(text))
    if known is not None:
        return known
    path = path_named(text)
    if ("/" in text or os.sep in text or text.endswith(".toml")) and (exists(path) or not is_repository(str(path))):
        return Resolved(kind=NameKind.PRESET_FILE, name=text, path=path)
    if is_repository(text):
        return Resolved(kind=NameKind.REPOSITORY, name=text)
    kinds = (
        (NameKind.SCRIPT, path.suffix == ".py"),
        (NameKind.FOLDER, is_folder(text)),
        (NameKind.OTHER_FILE, is_plain_file(text)),
    )
    named = next((sort for sort, is_it in kinds if is_it), NameKind.UNKNOWN)
    return Resolved(kind=named, name=text, path=None if named is NameKind.UNKNOWN else path)


def resolve_known(name: str, *, folder: bool) -> Resolved | None:
    """The net, or the Hub's model, that is called so and known without the network; None if none is.

    With `folder` it is the model that a folder is called after whose files cannot be read.
    """
    if folder:
        return _of_hub(*known_by_folder(name))
    return None if len(name) > LONGEST or exists(name) else _net(name) or _on_hub(name)


def is_repository(name: str) -> bool:
    """Return whether `name` is written as a model's id is: an owner, a slash and a name, or a name with a tag."""
    return len(name) <= LONGEST and _REPOSITORY.fullmatch(name) is not None


def _net(text: str) -> Resolved | None:
    if ("/" in text and not text.startswith(TIMM)) or not NET_NAME.fullmatch(text):
        return None
    from vramtui.models.readers.torchvision import is_known_net  # noqa: PLC0415 - lists of layers, only for these names

    return Resolved(kind=NameKind.NET, name=text) if is_known_net(text) else None


def _on_hub(text: str) -> Resolved | None:
    if "/" in text and not text.startswith(TIMM):
        return _of_hub(*known_on_hub(text))
    return _of_hub(*_by_tail().get(text.lower(), (text, None)))  # all owners of that name mean the same model


def _of_hub(name: str, known: str | HubConfig | None) -> Resolved | None:
    if known is None:
        return None
    if isinstance(known, str):
        return Resolved(kind=NameKind.SAME_AS_PRESET, name=name, preset=known)
    return Resolved(kind=NameKind.HUB_CONFIG, name=name, config=known)
