"""The preset of a name: `resolve` finds what the name is, and each kind of thing has its way to a preset."""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePath

import msgspec

from vramtui.core.base.errors import UserError, did_you_mean, nearest
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel
from vramtui.models.named_files import exists, is_plain_file
from vramtui.models.stores import resolve
from vramtui.models.stores.local_models import find_model, not_found
from vramtui.models.stores.resolve import letters_of
from vramtui.presets import model_presets
from vramtui.presets.library import PresetLibrary
from vramtui.presets.reader import load_preset

apply_overrides = late("vramtui.presets.overrides:apply_overrides")
MOST = 5
LOGS = (".log", ".out", ".txt")
SCRIPTS = (".sh", ".sbatch", ".slurm", ".bash", *LOGS)
OPTION_FILES = (".json", ".toml")  # of image trainers, if they are not presets or models
COMPOSED = re.compile(r"(.+\.ya?ml)(?::([\w.-]+))?", re.DOTALL)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)b(?![a-z0-9])", re.IGNORECASE)  # in billions
_BREAK = re.compile(r"[-_./:]")
_FIRST_WORD = re.compile(r"[A-Za-z]{3,}(?=[-_. ]?\d)")
# Words of people, and those of popular names.
OTHER_WORDS = {"stablediffusionxl": "sdxl", "sd3": "sd35", "stablediffusion3": "sd35", "stablediffusion": "sdxl"}
# Last words of presets' names: inference before training.
_RUNS = ("infer", "pipeline", "serve", "lora", "qlora", "full", "train", "fsdp")


net_names = late("vramtui.models.readers.torchvision:net_names")
preset_of_job = late("vramtui.presets.importers.derived:preset_of_job")
vision_table = late("vramtui.models.readers.torchvision:vision_table")
ALIKE = 0.85  # similarity from which a name on the Hub may be meant: other models' names are much alike


def names_like(word: str, keys: Iterable[str], hub_names: Iterable[str], most: int | None = MOST) -> tuple[str, ...]:
    """Return up to `most` names that have `word` in them, the most used first; `hub_names` are without owners."""

    def run(key: str) -> int:
        return next((at for at, kind in enumerate(_RUNS) if key.endswith(f"-{kind}")), len(_RUNS))

    plain = letters_of(word)
    plain = OTHER_WORDS.get(plain, plain)
    if len(plain) < 2 or plain.isdecimal():
        return ()
    presets = sorted((key for key in keys if not key.startswith(("rule-", "tiny-"))), key=lambda key: (run(key), key))
    names = dict.fromkeys((*resolve.POPULAR, *presets, *hub_names))
    beginning = [name for name in names if letters_of(name).startswith(plain)]
    # A later word begins so: `vit-base` is in sam-vit-base, but `lama` is not in llama.
    within = [
        name
        for name in names
        if name not in beginning and any(letters_of(name[at.end() :]).startswith(plain) for at in _BREAK.finditer(name))
    ]
    return tuple([*beginning, *within][:most])


def near_sizes(name: str) -> tuple[str, ...]:
    """Return up to three models of the family that a `name` with a size begins with, the nearest in size first."""
    stated, tag = _SIZE.search(name), name.partition(":")[0] if ":" in name else ""
    if stated is None:
        return ()
    models = (*resolve.ollama_tags(), *(known for known in resolve.known_names() if "/" not in known))
    alike = reversed(names_like(name[: stated.start()].rpartition("/")[2], (), models, None))
    sizes = {float(size[1]): one for one in alike if (size := _SIZE.search(one))}
    near = sorted(sizes, key=lambda size: abs(size - float(stated[1])))[:3]
    tags = {size: f"{tag}:{size:g}b" for size in near if tag}
    return tuple(tags[size] if tag and resolve.other_spelling(tags[size]) else sizes[size] for size in near)


def preset_asked(text: str, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the preset of what a person names: a preset or model, a file of a job, or a command with its options.
    Raises UserError if there is none, or it does not state a job that is known.
    """
    is_job = len(text.split()) > 1 or text.endswith((*SCRIPTS, *OPTION_FILES)) or COMPOSED.fullmatch(text)
    preset: PresetFile = (preset_of_job if is_job else preset_named)(text, library, hub=hub)
    return preset


def preset_named(text: str, library: PresetLibrary, *, hub: bool = False) -> PresetFile:
    """Return the preset of a preset's name or path, or of a model's file, folder, or name in a local store, on the Hub,
    in torchvision or timm; with `hub` the network is asked for a model that is not on this machine.

    Raises:
        UserError: nothing has that name (the sentence names the nearest), its file is broken, or the network fails.
    """
    if hub and text not in library and resolve.is_repository(text) and find_model(text) is None:
        address, preset = model_presets.preset_from_hub(text)
        return PresetFile(key=text, path=address, bundled=False, preset=preset)
    resolved = resolve.resolve(text, library.keys())
    try:
        return _open(resolved, library)
    except UserError as error:
        spelling = None if resolved.path is not None and exists(resolved.path) else resolve.other_spelling(text)
        if spelling is None:
            is_missing = resolved.path is not None and not exists(resolved.path)  # a file, whose name says what it is
            if not is_missing or not (near := near_sizes(text)):
                raise
            raise UserError(f"{error}{did_you_mean(near)}") from None
    preset_file = _open(resolve.resolve(spelling.name, library.keys()), library)
    settings, words = [], f"{printable(text)} is read as {spelling.name}"
    if spelling.type and not spelling.program:
        settings = [f"run.quantization={spelling.type}"]
        settings += ["run.kind=serve", f"run.unquantized={spelling.unquantized}"] if spelling.unquantized else []
        words += f" in {spelling.type}" + (f" but for {spelling.unquantized}" if spelling.unquantized else "")
    elif spelling.type:
        from vramtui.presets.job_flags import QUANTIZATIONS  # noqa: PLC0415 - only for a type in a name

        kind = spelling.type.lower()
        is_text = isinstance(preset_file.preset.model, TransformerModel)  # ComfyUI loads other models' GGUF files
        settings = ["run.kind=serve", "run.engine=llama.cpp"] if is_text else []
        # llama-quantize keeps all but the experts in q8_0; Ollama's own files keep it in 16 bits.
        kind = "mxfp4_moe" if kind == "mxfp4" and spelling.program != "Ollama" else kind
        settings.append(f"run.quantization={QUANTIZATIONS.get(kind.replace('_', '-').replace('fp', 'f'), kind)}")
        words += f" at {spelling.type}" + (f" in {spelling.program}" if is_text else "")
    if spelling.program == "Ollama":
        settings[1] = "run.engine=ollama"
    try:
        preset = apply_overrides(preset_file.preset, settings)
    except UserError:
        raise UserError(f"{words}, and no type of that name is known: --quant names another, as Q4_K_M") from None
    preset = msgspec.structs.replace(preset, notes=f"{words}. {preset.notes}".strip())
    return msgspec.structs.replace(preset_file, preset=preset, settings=tuple(settings))


def preset_known(name: str, library: PresetLibrary, *, folder: bool = False) -> PresetFile | None:
    """Return the net, or the Hub's model, of that name if it is known without the network; None otherwise.

    With `folder` it is the model that a folder is called after whose files cannot be read.
    """
    resolved = resolve.resolve_known(name, folder=folder)
    return None if resolved is None else _open(resolved, library)


def _open(resolved: resolve.Resolved, library: PresetLibrary) -> PresetFile:
    name, place, address = resolved.name, resolved.path, f"https://huggingface.co/{resolved.name}"
    match resolved.kind:
        case resolve.NameKind.PRESET:
            return library.get(name)
        case resolve.NameKind.MODEL | resolve.NameKind.STORED:
            assert place is not None
            # Not resolved: a cache's files are links to blobs, whose names say nothing.
            path, preset = str(place.absolute()), model_presets.preset_of(place, name)
            return PresetFile(key=name or model_presets.title_of(place), path=path, bundled=False, preset=preset)
        case resolve.NameKind.NET:  # inference of a batch in fp32
            notes = "Sizes by name from torchvision or timm (not downloaded)."
            run = {"kind": "infer", "precision": "fp32"}
            preset = model_presets.checked_preset(
                name, {"name": name, "notes": notes, "model": vision_table(name), "run": run}
            )
            return PresetFile(key=name, path=name, bundled=False, preset=preset)
        case resolve.NameKind.SAME_AS_PRESET:
            preset = model_presets.preset_of_known(name, library.bundled(resolved.preset))
            return PresetFile(key=name, path=address, bundled=False, preset=preset)
        case resolve.NameKind.HUB_CONFIG:
            assert resolved.config is not None
            preset = model_presets.preset_of_values(name, resolved.config.config)
            return PresetFile(key=name, path=address, bundled=False, preset=preset)
        case resolve.NameKind.PRESET_FILE:
            assert place is not None
            try:
                preset = load_preset(place)
            except UserError as error:
                if exists(place):
                    raise
                raise UserError(f"{error}{nearest(place.stem, library.keys())}") from None
            whole = place.resolve()
            return PresetFile(key=place.stem, path=str(whole), bundled=library.is_bundled(whole), preset=preset)
        case resolve.NameKind.REPOSITORY:
            alike = nearest_preset(name, library, {"run.kind": "infer"})
            near = did_you_mean(near_sizes(name)) or nearest(name, resolve.known_names(), cutoff=ALIKE)
            raise UserError(not_found(name, alike.key if alike is not None else None, near))
        case resolve.NameKind.SCRIPT if place is not None:
            there = "" if is_plain_file(place) else ", and no such file is here"
            raise UserError(f"{name} is a script, not a preset{there}; `vramtui dry-run {name}` runs it without a GPU")
        case resolve.NameKind.FOLDER:
            folder = f"the folder {name} holds" if name else "the name is empty, and this folder holds"
            raise UserError(f"{folder} no config.json, safetensors or GGUF file")
        case resolve.NameKind.OTHER_FILE:
            raise UserError(f"{name} is not a preset (.toml), config.json, safetensors or GGUF file")
    if is_plain_file(Path(f"{name}.py")):
        script = f"`vramtui dry-run {name}.py` runs the script {name}.py without a GPU"
        raise UserError(f"no preset is called {name!r}; {script}")
    # The names that may be meant: those of the family, or the most similar one; otherwise what to do.
    keys, models = library.keys(), [known for known in resolve.known_names() if "/" not in known]
    if family := near_sizes(name) or names_like(name, keys, models):
        guess = did_you_mean(family)
    else:
        # Nets' names have `_`, and presets' names `-`.
        nets = net_names() if "_" in name and resolve.NET_NAME.fullmatch(name) else ()
        guess = nearest(name, (*keys, *nets), most=4) or nearest(name, resolve.known_names(), cutoff=ALIKE, most=4)
    word = _FIRST_WORD.match(name)  # `glm-4.6` is a GLM
    if guess:
        guess += "; `vramtui presets list` names them all"
    elif word is not None and (kin := names_like(word[0], keys, models)):
        guess = f"; of that family {', '.join(kin)} are known, `vramtui estimate OWNER/NAME --hub` asks huggingface.co"
    else:
        try:
            card(name)
            guess = f"; {name} is a card: `vramtui estimate MODEL --gpu {name}`"
        except UserError:
            guess = (
                ", and no model that is known here; `vramtui estimate OWNER/NAME --hub` asks huggingface.co, a"
                " config.json, safetensors or GGUF file is read, and `vramtui dry-run SCRIPT.py` runs your own code"
                " without a GPU"
            )
    raise UserError(f"no preset is called {name!r}{guess}")


_LLAMA_CPP = {"llama.cpp", "ollama"}
_RUN_WORDS = {"lora", "qlora", "full", "fsdp", "infer", "serve", "server", "train", "llama-server", "mlm", "classify"}
_PARTS = re.compile(r"\d+(?:\.\d+)?(?:[bm](?![a-z]))?|[a-z]+")
_ALIASES = {
    # They have the shapes of the 3.1 models, which only take longer texts.
    **{f"llama-3-{size}{kind}": f"llama-3.1-{size}" for size in ("8b", "70b") for kind in ("", "-instruct")},
    "gpt2": "gpt2-124m",
    "gpt2-medium": "gpt2-355m",
    "gpt2-large": "gpt2-774m",
    "gpt2-xl": "gpt2-1.5b",
    "stable-diffusion-xl-base-1.0": "sdxl",
    "stable-diffusion-v1-5": "sd-1.5",
    "stable-diffusion-2-1": "sd-2.1",
    "flux.1-dev": "flux-dev",
}


def nearest_preset(name: str, library: PresetLibrary, values: Mapping[str, str]) -> PresetFile | None:
    """Return the preset of the model called `name` whose run is the nearest to `values`; None if there is none."""
    all_words = {word[0] for word in _words(name)}
    best, closest = None, (1, 0)
    for file in library.files():
        key = "-".join(part for part in file.stem.split("-") if part not in _RUN_WORDS)
        parts = {word[0] for word in _words(key)}
        if len(parts) < closest[0] or not parts <= all_words:
            continue
        # A number after the family's name, or letters joined to its number: FLUX.2 is not FLUX, Gemma 3n not Gemma 3.
        family = key.partition("-")[0]  # in the folder or file that has its name: another may be called 2cd
        if any(
            after[0] not in parts and word[0] in parts
            and (after[0][0].isdigit() if word[0] == family else word[0][0].isdigit() and word.end() == after.start())
            for part in name.split("/") if family in {word[0] for word in _words(part)}
            for word, after in pairwise(_words(part))
        ) or (preset_file := library.find(file.stem)) is None:  # fmt: skip
            continue
        run, parallel = preset_file.preset.run, preset_file.preset.parallel or Parallel()
        agreement = (
            16 * (run.__struct_config__.tag == values.get("run.kind"))
            + 8 * ((getattr(run, "engine", "vllm") in _LLAMA_CPP) == (values.get("run.engine") in _LLAMA_CPP))
            + 4 * ((run.quantization is not None) == ("run.quantization" in values))
            + 2 * ((getattr(run, "lora", None) is not None) == ("run.lora.rank" in values))
            + (parallel.strategy == values.get("parallel.strategy", "ddp"))
        )
        if best is None or (len(parts), agreement) > closest:
            best, closest = preset_file, (len(parts), agreement)
    return best


def _words(name: str) -> Iterator[re.Match[str]]:
    """The words and numbers of a model's name; `3_1` is 3.1, and names without a size get the one they mean."""
    plain = name.lower().rstrip("/")
    text = re.sub(r"(?<=\d)_(?=\d)", ".", PurePath(plain).name if "." in plain else plain)
    for short, whole_name in _ALIASES.items():
        text = text.removesuffix(short) + whole_name if text.endswith(short) else text
    return _PARTS.finditer(text)
