"""Names as people and other programs spell them: Ollama's tags, GGUF repositories and files, addresses, loose words."""

import re
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vramtui.core.base import toml
from vramtui.models.stores.hub_ids import known_names
from vramtui.models.stores.local_models import without_address

# What a name of a trained model may have behind it, the usual one first.
_ENDINGS = ("", "instruct", "it", "chat", "hf", "base", "instruct2507")
_GGUF = re.compile(r"(?:[\w.-]+/)?([\w.-]+?)-GGUF(?::([\w.-]+))?", re.IGNORECASE)
_KINDS = r"(?:UD-)?(?:[IT]?Q\d\w*|MXFP4\w*|BF16|F16)"
_FILE = re.compile(rf"(?:[^\n]*/)?([\w.-]+?)[-.]({_KINDS})(?:-\d{{5}}-of-\d{{5}})?\.gguf", re.IGNORECASE)
_TAG = re.compile(r"([a-z][\w.-]*):([\w.-]+)")
_TYPE = re.compile(r"(?:i?q\d\w*|mxfp4|fp16|f16|bf16)", re.IGNORECASE)
# A repository of a model that somebody quantized, by the end of its name.
_QUANTIZED = re.compile(
    r"(.+?)[-_.](?:(?P<fp8>fp8)|(?P<nvfp4>nvfp4)|(?P<nf4>(?:unsloth-)?bnb-4bit)|(?P<int8>(?:gptq-)?int8|w8a8)|"
    r"(?P<int4>(?:awq|gptq|autoround|int4|w4a16|4bit)))(?:[-_.][\w.-]+)?",
    re.IGNORECASE,
)
# What owners' quantized models keep in 16 bits, by their config.json.
_UNQUANTIZED = {
    re.compile(r"meta-llama/.*-fp8", re.IGNORECASE): "attention and outer layers",
    re.compile(r"nvidia/gemma-4-.*-nvfp4", re.IGNORECASE): "attention",
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
        name = _find_name(file[1])
        return None if name is None else OtherSpelling(name, file[2], "llama.cpp")
    if repository := _GGUF.fullmatch(text):
        name = _find_name(repository[1])
        return None if name is None else OtherSpelling(name, repository[2] or USUAL_TYPE, "llama.cpp")
    if tag := _TAG.fullmatch(text):
        words = tag[2].split("-")
        kind = next((word for word in words if _TYPE.fullmatch(word)), "")
        named, usual = _tags().get(text) or _tags().get(f"{tag[1]}:{words[0]}") or ("", USUAL_TYPE)
        name = named or _find_name(tag[1] + "".join(word for word in words if word != kind))
        usual = "mxfp4" if name is not None and "gpt-oss" in name else usual
        return None if name is None else OtherSpelling(name, kind or usual, "Ollama")
    if quantized := _QUANTIZED.fullmatch(text):
        name = _find_name(quantized[1]) or _find_name(quantized[1].rpartition("/")[2])
        unquantized = next((words for repository, words in _UNQUANTIZED.items() if repository.fullmatch(text)), "")
        return None if name is None else OtherSpelling(name, quantized.lastgroup or "", "", unquantized)
    # Without a size ("kimi-k2") the words may name a family.
    name = _find_name(text) if re.search(r"\d[bB]\b", text) else _by_letters().get(letters_of(text))
    return None if name is None else OtherSpelling(name)


def letters_of(name: str) -> str:
    """Return a name's letters and digits, without the marks between them and in lower case."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


@lru_cache(maxsize=1)
def _tags() -> dict[str, tuple[str, str]]:
    table = toml.loads(Path(__file__).with_name("ollama_tags.toml").read_text(encoding="utf-8"))
    return {tag: (*value.split(), USUAL_TYPE)[:2] for tag, value in table.items()}


@lru_cache(maxsize=1)
def _by_letters() -> dict[str, str]:
    return {letters_of(name): name for name in reversed(known_names()) if "/" not in name}


def _find_name(name: str) -> str | None:
    letters = letters_of(name)
    if not any(letter.isdigit() for letter in letters):
        return None  # "llama" by itself names a family
    known = _by_letters()
    return next((known[letters + end] for end in _ENDINGS if letters + end in known), None)
