"""Values that a job's command line and files set, each with the flag it was read from: for a new preset, and for a
running job's own, with its launcher's defaults.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from itertools import takewhile
from math import isqrt
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import nearest
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.core.estimate.assumptions import with_usual_adapters
from vramtui.core.schema.models import DiffusionTransformerModel, PipelineModel, UNetModel
from vramtui.core.schema.preset import Known, Match, PresetFile
from vramtui.core.schema.workload import Engine, Precision, ServeRun, TrainRun, Workload
from vramtui.models.named_files import exists
from vramtui.models.stores.local_models import is_model_file
from vramtui.presets.importers.command_lines import CommandLine, Option, read_command_line
from vramtui.presets.importers.flags import (
    FLAGS,
    GGUF_QUANTIZATIONS,
    LAUNCHED,
    MODEL_FLAGS,
    MOST_RANKS,
    OTHERS,
    OWN,
    SERVERS,
    SHARED,
    TITLES,
    WEIGHTLESS,
    is_checkpointing_off,
    whole,
)
from vramtui.presets.importers.job_files import (
    FILE_OPTIONS,
    SAYS_NOTHING,
    JobFile,
    Offer,
    offers_of_file,
    with_models_of,
)
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import nearest_preset

if TYPE_CHECKING:
    from vramtui.presets.draft import Draft, TryOut

# Only for a new preset: `ps` reads the values of running jobs.
new_draft: "Callable[..., Draft]" = late("vramtui.presets.draft:Draft")
draft_copy: "Callable[..., Draft]" = late("vramtui.presets.draft:draft_copy")
draft_from_model: "Callable[..., Draft]" = late("vramtui.presets.draft:draft_from_model")
value_text: Callable[[object], str] = late("vramtui.presets.toml_text:value_text")

PRESET, MODEL_FILE = "preset", "model.config"
_TRAINS = re.compile(r"train|tune|sft|dpo|grpo|rlhf|dreambooth|text_to_image|lora|axolotl", re.IGNORECASE)
# Ways to train that need more than the texts and the model: pairs, a reference or reward model, generations.
_PREFERENCES = re.compile(r"(?:^|[^a-z])(dpo|ipo|kto|orpo|simpo|cpo|grpo|gspo|ppo|rloo|gkd|reward|rm)(?:$|[^a-z])")
# Ollama's runner is llama.cpp's server with options of the same names.
_LLAMA_CPP = re.compile(r"(^|[/\s])(llama-(server|cli|run|bench)|ollama(_llama_server)? runner)\b")
# DeepSpeed keeps weights in half precision and a master copy; a trainer's switch without it means autocast.
MASTER: dict[str, Precision] = {"bf16-mixed": "bf16-master", "fp16-mixed": "fp16-master"}
_TGI = re.compile(r"text[-_]generation[-_](launcher|server)")
_TORCHTUNE = re.compile(r"(^|[/\s])tune run\b")
_EMPTY = """\
name = "{name}"

[model]
kind = "transformer"

[run]
kind = "train"
"""


def draft_from_process(command: str, library: PresetLibrary, files: Iterable[JobFile] = ()) -> tuple[Offer, ...]:
    """Offer what a job's command line sets: a known preset or a model's file to begin with, then the run's values, then
    how to recognise the job. It offers nothing that is not set.
    """
    files = tuple(files)
    line = with_models_of(read_command_line(command), files)
    family = family_of(line)
    if family == "tensorrt-llm":
        return ()
    kind = run_kind(line, family)
    if kind is None and files:  # all files that are read are those of training programs
        kind = Offer(key="run.kind", value="train", flag=files[0].name)
    by_key = {offer.key: offer for file in files for offer in offers_of_file(file)}
    by_key |= {offer.key: offer for offer in offers_in_command(line, family)}
    precision = by_key.get("run.precision")
    has_master = any(file.kind == "deepspeed" or "deepspeed_config.zero_stage" in file.values for file in files)
    if precision is not None and has_master and precision.value in MASTER:
        flag = f"{precision.flag} with DeepSpeed"
        by_key["run.precision"] = Offer(key="run.precision", value=MASTER[precision.value], flag=flag)
    if kind is not None:
        by_key = {kind.key: kind} | by_key
    named = model_named(line, family)
    if family in SERVERS and family != "vllm":
        flag = printable(line.script or line.words[0])
        by_key["run.engine"] = Offer(key="run.engine", value=engine_of(line, family), flag=flag)
        if family == "llama.cpp" and named is not None:
            # llama.cpp's files are called by their quantization: `Llama-3.1-8B-Instruct-Q4_K_M.gguf`.
            known = sorted(GGUF_QUANTIZATIONS, key=len, reverse=True)
            name = named.value.lower()
            word = next((word for word in known if re.search(rf"[-._]{word}(?![a-z0-9])", name)), None)
            if word is not None:
                by_key["run.quantization"] = _offer("run.quantization", word, named)
    begin: list[Offer] = []
    if named is not None:
        if named.value.startswith(("/", "~")) and exists(named.value) and is_model_file(named.value):
            begin.append(_offer(MODEL_FILE, named.value, named))
        values = {key: offer.value for key, offer in by_key.items()}
        preset_file = nearest_preset(named.value, library, values)
        if preset_file is not None:
            begin += (_offer(PRESET, preset_file.key, named), *image_size(line, preset_file))
    match = match_words(line, named)
    if match is None:
        return (*begin, *by_key.values())
    words = Offer(key="match.all", value=value_text(msgspec.to_builtins(match.all)), flag=printable(line.script))
    return (*begin, *by_key.values(), words)


def settings_of_files(files: Iterable[JobFile], library: PresetLibrary) -> dict[str, tuple[str | None, Known]]:
    """Return a run's settings of training programs' files, and those programs' defaults: under each key its value, None
    if it is unknown, and where it is from.
    """
    files = tuple(files)
    settings: dict[str, tuple[str | None, Known]] = {
        offer.key: (offer.value, Known(offer.key, "job's file", offer.flag))
        for offer in draft_from_process("", library, files)
        if "." in offer.key and offer.key != MODEL_FILE
    }
    for file in files:
        off = next((name for name, value in file.values.items() if is_checkpointing_off(name, value)), None)
        if off is not None:
            flag = f"{file.name}: {off} = {file.values[off]}"
            settings["run.checkpointing"] = ("none", Known("run.checkpointing", "job's file", flag))
        programs = _defaults()["files"]
        defaults = dict(programs.get(file.kind, {}))
        if file.kind == "llamafactory":
            defaults |= programs.get(file.values.get("finetuning_type", "lora"), {})
        if file.kind == "torchtune" and "run.lora.rank" in settings:
            # As above: adapters are made in `dtype` (lora_finetune_*.py, set_default_dtype).
            defaults["run.lora.autocast_adapter_dtype"] = "false"
        for key, default in defaults.items():
            if not any(one == key or one.startswith(f"{key}.") for one in settings):
                settings[key] = (default, Known(key, "launcher's default", f"{TITLES[file.kind]}'s default"))
    return settings


def start_from(
    offers: tuple[Offer, ...], library: PresetLibrary, name: str, *, try_out: "TryOut | None" = None
) -> "Draft":
    """Make a draft called `name` from the offers that a person took; what it still needs is in its `problems`.

    Raises:
        UserError: the preset or the model's file to begin with cannot be read, or `name` is not a file's name.
    """
    values = {offer.key: offer.value for offer in offers}
    if MODEL_FILE in values:
        draft = draft_from_model(values[MODEL_FILE], try_out=try_out)
        draft.name = name
    elif PRESET in values:
        draft = draft_copy(library.get(values[PRESET]), name, try_out=try_out)
        draft.unset("measured")
    else:
        draft = new_draft(_EMPTY.format(name=name), name, try_out=try_out)
    draft.set_value("name", name)
    for key in sorted(values.keys() - {PRESET, MODEL_FILE}, key=lambda key: key != "run.kind"):
        draft.set_value(key, values[key])
        if key == "run.kind":
            draft.drop_unknown()
    return draft


def family_of(line: CommandLine) -> str:
    """Return the family of a command line's options; `trainer` (transformers and libraries built on it) by default."""
    text = " ".join(line.words[:8]).lower()
    names = {option.name for option in line.options}
    are_diffusers = "network_module" in names or {"pretrained_model_name_or_path", "resolution"} <= names
    signs = (
        ("sglang", "sglang" in text),
        ("tensorrt-llm", "trtllm-serve" in text or "tensorrt_llm" in text),
        ("tgi", bool(_TGI.search(text))),
        ("vllm", "vllm" in text),
        ("llama.cpp", bool(_LLAMA_CPP.search(text)) or any(word.endswith(".gguf") for word in line.words)),
        ("megatron", "tensor_model_parallel_size" in names or {"micro_batch_size", "seq_length"} <= names),
        ("torchtune", "torchtune" in text or bool(_TORCHTUNE.search(text))),
        ("nanogpt", bool({"n_layer", "n_embd"} & names) or "nanogpt" in text or "config/train_gpt" in text),
        ("diffusers", "diffusers" in text or are_diffusers),
    )
    return next((family for family, seen in signs if seen), "trainer")


def engine_of(line: CommandLine, family: str) -> Engine:
    """Return a server's engine; vLLM for a family that is none."""
    is_ollama = family == "llama.cpp" and "ollama" in " ".join(line.words[:2])
    return "ollama" if is_ollama else SERVERS.get(family, "vllm")


def offers_in_command(line: CommandLine, family: str) -> Iterator[Offer]:
    """Offer the options that set a key; if several set the same, the one that says more of it is last in FLAGS."""
    table = FLAGS[family]
    order = list(table)
    known = [option for option in line.options if option.name in table]
    for option in sorted(known, key=lambda option: order.index(option.name)):
        key, spell = table[option.name]
        value = spell(option.value)
        if value is not None:
            yield _offer(key, value, option)
    keys = line.find("ctk", "cache_type_k")
    if family == "llama.cpp" and keys is not None and line.find("ctv", "cache_type_v") is None:
        yield _offer("run.kv_cache_v", "fp16", keys)  # values stay as they are
    if family == "llama.cpp":
        context, slots = line.find("OLLAMA_CONTEXT_LENGTH"), line.find("np", "parallel", "OLLAMA_NUM_PARALLEL")
        if context is not None and (each := whole(context.value)) and line.find("c", "ctx_size") is None:
            yield _offer("run.max_model_len", str(int(each) * int((slots and whole(slots.value)) or 1)), context)
        flash = line.find("fa", "flash_attn", "OLLAMA_FLASH_ATTENTION")
        if flash is not None and flash.value.lower() in _OFF and line.find("OLLAMA_KV_CACHE_TYPE") is not None:
            yield _offer("run.kv_cache", "fp16", flash)  # Ollama quantizes it only with flash attention (llm/server.go)
        # A batch limits the micro-batch; they are 2,048 and 512 if not stated (src/llama-context.cpp, common/common.h).
        batch, micro = line.find("b", "batch_size"), line.find("ub", "ubatch_size")
        most = int((batch and whole(batch.value)) or 2048)
        if batch is not None and most < int((micro and whole(micro.value)) or 512):
            yield _offer("run.max_num_batched_tokens", str(most), batch)
        # It takes all GPUs that are visible, unless -sm none is given.
        mode, asked = line.find("sm", "split_mode"), line.find(*LAUNCHED)
        listed = line.find("ts", "tensor_split") or line.find("dev", "device") or line.find("CUDA_VISIBLE_DEVICES")
        gpus = len(re.split("[,/]", listed.value)) if listed else int((asked and whole(asked.value)) or 1)
        if mode is not None and mode.value == "none":
            yield _offer("run.tensor_split", "", mode)
        elif gpus > 1 and (shared := listed or asked):
            yield _offer("parallel.pipeline", str(gpus), shared)
    # A launcher's processes are data-parallel ranks, unless something else shares them.
    processes = line.find(*LAUNCHED)
    count = whole(processes.value) if processes is not None else None
    if family in {"trainer", "torchtune", "diffusers", "nanogpt"} and processes is not None and count is not None:
        nodes = None if processes.name == "num_processes" else line.find("nnodes", "num_nodes")
        each = whole(nodes.value) if nodes is not None else None
        source = processes if nodes is None or each is None else Option("", "", f"{processes.flag} {nodes.flag}")
        ranks = int(count) * int(each or 1)
        if 1 < ranks <= MOST_RANKS:
            yield _offer("parallel.data", str(ranks), source)
    sharing = line.find("fsdp", "use_fsdp", "fsdp_sharding_strategy")
    off = {"false", "0"} if line.find("use_fsdp") else {"", "false", "0"}  # a bare --use_fsdp is on
    if sharing is not None and sharing.value.lower() not in off:
        yield _offer("parallel.strategy", "fsdp", sharing)
        yield _offer("parallel.zero_stage", "2" if "grad_op" in sharing.value.lower() else "3", sharing)
    if family == "torchtune" and line.script.endswith("_distributed") and processes is not None:
        yield _offer("parallel.strategy", "fsdp", processes)  # recipes/*_distributed.py: fully_shard
    distributed = line.find("use_distributed_optimizer")
    if distributed is not None and family == "megatron":
        yield _offer("parallel.strategy", "zero", distributed)
    stage = line.find("zero_stage")
    if stage is not None and stage.value in {"1", "2", "3"}:
        yield _offer("parallel.strategy", "zero", stage)


def run_kind(line: CommandLine, family: str) -> Offer | None:
    if family in SERVERS:
        return Offer(key="run.kind", value="serve", flag=printable(line.script))
    if family in {"megatron", "nanogpt", "torchtune"} or _TRAINS.search(" ".join((line.script, *line.words[:3]))):
        return Offer(key="run.kind", value="train", flag=printable(line.script))
    trains = line.find("per_device_train_batch_size", "learning_rate", "num_train_epochs", "max_steps", "optim")
    return _offer("run.kind", "train", trains) if trains is not None else None


def not_modelled_in(line: CommandLine) -> str:
    """Say in a sentence which way to train on preferences or rewards a command has; empty if it has none."""
    ways = (option.value for option in line.options if option.name in {"stage", "rlhf_type", "rl"})
    text = " ".join((PurePath(line.script).stem, *line.words[:3], *ways)).lower()
    way = _PREFERENCES.search(text)
    counted = "is not modelled: counted as supervised fine-tuning, without pairs, a reference model or generations."
    return f"{way[1].upper()} {counted}" if way is not None and _TRAINS.search(text) else ""


def image_size(line: CommandLine, preset_file: PresetFile) -> Iterator[Offer]:
    """Offer `--resolution` in pixels (512, or 768,1024): a UNet's sample is an eighth of it, a diffusion transformer's
    the image, here a square of as many.
    """
    resolution = line.find("resolution")
    if resolution is None or not re.fullmatch(r"\d{2,5}([,x]\d{2,5})?", resolution.value):
        return
    sides = [int(side) for side in re.split("[,x]", resolution.value)]
    pixels = str(isqrt(sides[0] * sides[-1]) // 16 * 16)
    model = preset_file.preset.model
    denoiser, key = (model.denoiser, "model.denoiser") if isinstance(model, PipelineModel) else (model, "model")
    if isinstance(denoiser, UNetModel):
        yield _offer(f"{key}.sample_size", str(int(pixels) // 8), resolution)
    elif isinstance(denoiser, DiffusionTransformerModel):
        yield _offer(f"{key}.sample_size", pixels, resolution)


def model_named(line: CommandLine, family: str) -> Option | None:
    """Return the model's name or path: an option's, or the word after `serve` of vLLM and TGI."""
    if family in {"vllm", "tgi"}:
        behind = (at for at, word in enumerate(line.words, 1) if PurePath(word).name == "serve")
        place = max(behind, default=len(line.words))
        if place < len(line.words) and not line.words[place].startswith("-"):
            return Option("model", line.words[place], f"serve {line.words[place]}")
    published = next((word for word in line.words if PurePath(word).name == "train_gpt2.py"), None)
    if family == "nanogpt" and published is not None and line.find("n_layer", "n_embd", "init_from") is None:
        return Option("model", "gpt2", published)
    options = (line.find(name) for name in MODEL_FLAGS if name != "m" or family == "llama.cpp")
    return next((option for option in options if option is not None and option.value), None)


def match_words(line: CommandLine, named: Option | None) -> Match | None:
    """Match the script's name, and the model's if it is named: many jobs have a script of the same name."""
    if not line.script:
        return None
    model = PurePath(named.value).name if named is not None else ""
    words = (line.script, model) if model and model in " ".join(line.words) else (line.script,)
    return Match(all=tuple((word,) for word in words))


def _offer(key: str, value: str, option: Option) -> Offer:
    return Offer(key=key, value=value, flag=printable(option.flag))


# Switches that give a job adapters, of libraries and of people's own scripts.
_ADAPTERS = (
    *("lora", "use_lora", "qlora", "use_qlora", "use_peft", "peft", "dora", "use_dora"),
    *("network_module", "tuner_type", "train_type", "sft_type"),  # of kohya's scripts and ms-swift
)
_OFF = {"false", "no", "none", "0", "off"}
# Programs that serve a model and take their share of the card, whatever a training or inference preset says.
_SERVERS = re.compile(
    r"(?:^|/)(?:vllm|sglang|llama-server|text-generation-(?:launcher|server))$|^(?:vllm\.entrypoints|sglang\.launch_server)"
)
_HEADS = ("run", "parallel")  # the shape is the preset's: a command line that names another one names another model
# Keys that a model's name may state more exactly than a flag: --bf16, --quantization bitsandbytes.
_COARSE = {"run.precision", "run.quantization"}
ALIKE, SHORT = 0.85, 8  # of a misspelt option and the one that is meant; letters of one that may be anything


def with_command(preset_file: PresetFile, command: str) -> PresetFile:
    """Set `preset_file`'s run to the values of `command`, and a bundled preset's other values to its launcher's
    defaults; `known` lists those, `assumed` the rest. A person's own preset keeps its other values.

    A value that the run does not have is left out.
    """
    line = read_command_line(command)
    family, bundled = family_of(line), preset_file.bundled
    offers = {one.key: one for one in offers_in_command(line, family) if one.key.split(".")[0] in _HEADS}
    for option in line.options:
        key, value = OWN.get(option.name), whole(option.value)
        if key is not None and key not in offers and value is not None:
            offers[key] = Offer(key=key, value=value, flag=option.flag)
    workload, known = preset_file.preset.workload, {one.key: one for one in preset_file.known}
    context = line.find("c", "ctx_size", "n_ctx") or line.find("fit") if family == "llama.cpp" else None
    longest = getattr(workload.model, "max_position_embeddings", None)
    if context is not None and longest and context.value == {"fit": "off"}.get(context.name, "0"):
        # The model's own, which is then not cut to what fits (common/arg.cpp of llama.cpp).
        offers["run.max_model_len"] = Offer(key="run.max_model_len", value=str(longest), flag=context.flag)
    switch = line.find(*_ADAPTERS)
    is_other = switch is not None and switch.name.endswith("_type") and "lora" not in switch.value.lower()
    is_off = switch is not None and (is_other or switch.value.lower() in _OFF)
    adapters = ""  # the flag that gives the job adapters which the preset does not have
    if bundled and isinstance(workload.run, TrainRun) and workload.run.lora is None and not is_off:
        first = next((offer.flag for key, offer in sorted(offers.items()) if key.startswith("run.lora.")), "")
        named = line.script if "lora" in line.script.lower() else ""
        adapters = switch.flag if switch is not None else first or named
    if adapters:
        workload = with_usual_adapters(workload)
    # Sharding is one decision: its strategy and its sizes are set together or not at all, whatever their order.
    for _, offer in (*sorted(offers.items()), *((one.key, one) for one in image_size(line, preset_file))):
        try:
            read: object = toml.loads(f"value = {offer.value}")["value"]
        except (ValueError, RecursionError):
            read = offer.value
        if offer.key == "run.mmproj" and all(one.place != "tower" for one in getattr(workload.model, "tensors", ())):
            continue  # the size of its tower is unknown
        changed = _changed(workload, offer.key, read)
        if changed is not None:
            workload = changed
        if changed is not None or (offer.key in _COARSE and _has(workload, offer.key)):
            known[offer.key] = Known(offer.key, "command line", offer.flag)
    if bundled:
        if is_off:
            workload = _changed(workload, "run.lora", None) or workload
        flag = adapters or (switch.flag if switch is not None else "")
        if flag and not any(key.startswith("run.lora") for key in known):
            known["run.lora"] = Known("run.lora", "command line", flag)
        off = next((option.flag for option in line.options if is_checkpointing_off(option.name, option.value)), "")
        if off and "run.checkpointing" not in known:
            workload = _changed(workload, "run.checkpointing", "none") or workload
            known["run.checkpointing"] = Known("run.checkpointing", "command line", off)
        kinds = {family}
        if family == "trainer":
            kinds |= {"Trainer"} if line.find("per_device_train_batch_size", "do_train") is not None else set()
            is_named = any(word.rpartition("/")[2] in {"llamafactory-cli", "lmf"} for word in line.words[:4])
            if is_named or {"stage", "finetuning_type"} <= {option.name for option in line.options}:
                stated = line.find("finetuning_type")
                kinds |= {"LLaMA-Factory", f"LLaMA-Factory, finetuning_type {(stated and stated.value) or 'lora'}"}
        started = [
            one for one in _defaults()["launchers"]
            if one["kind"] in kinds and re.fullmatch(one.get("script", ".*"), line.script)
        ]  # fmt: skip
        last = {key: (default, one["name"]) for one in started for key, default in one["sets"].items()}
        if "run.lora" in last and getattr(workload.run, "lora", None) is not None:  # what is not stated of adapters
            usual, launcher = last.pop("run.lora")
            last |= {f"run.lora.{key}": (value, launcher) for key, value in (usual or {}).items()}
        for key, (default, launcher) in last.items():
            if key in known or not _has(workload, key) or (key == "run.lora" and any("lora" in one for one in known)):
                continue
            workload = _changed(workload, key, default) or workload
            known[key] = Known(key, "launcher's default", f"{launcher}'s default")
    run = workload.run
    is_zero = bundled and workload.parallel is not None and workload.parallel.strategy == "zero"
    if is_zero and isinstance(run, TrainRun) and run.precision in MASTER:
        run = msgspec.structs.replace(run, precision=MASTER[run.precision])
    preset = msgspec.structs.replace(preset_file.preset, model=workload.model, run=run, parallel=workload.parallel)
    # Unknown keys on which the run's memory depends most; all servers but llama.cpp take their share of the card.
    if isinstance(run, ServeRun):
        assumed = ["run.max_model_len"] if run.is_llama_cpp and "run.max_model_len" not in known else []
    else:
        sizes = [one for one in ("batch_size", "sequence_length", "precision") if getattr(run, one, None) is not None]
        assumed = [f"run.{one}" for one in sizes if f"run.{one}" not in known]
    if isinstance(run, TrainRun):
        is_said = any(key in known for key in ("run.lora", "run.lora.rank", "run.lora.target_modules"))
        assumed += [] if is_said else ["run.lora"]
        assumed += [] if run.lora is None or "run.lora.rank" in known else ["run.lora.rank"]
        assumed += [] if "run.checkpointing" in known else ["run.checkpointing"]
    assumed = assumed if bundled else []
    if not known and not assumed:
        return preset_file
    return msgspec.structs.replace(preset_file, preset=preset, known=tuple(known.values()), assumed=tuple(assumed))


def unused_options(line: CommandLine, preset_file: PresetFile, files: Collection[JobFile] = ()) -> list[str]:
    """The options of a command, as written, that are not understood or do not apply to the run; a misspelt one with the
    server's option that is meant.
    """
    family = family_of(line)
    read = {word for known in preset_file.known for word in (known.words, *known.words.split())}
    table, named = FLAGS[family], model_named(line, family)
    others = {*MODEL_FLAGS, *_ADAPTERS, *LAUNCHED, *SHARED, *OWN, *FILE_OPTIONS, "nnodes", "num_nodes", "resolution"}
    others |= {"fsdp", "use_fsdp", "fsdp_sharding_strategy", "zero_stage", "finetuning_type"}

    def is_used(option: Option) -> bool:
        is_read = printable(option.flag) in read
        if option.name in table and not is_read:
            key, spell = table[option.name]
            return option.value.lower() in SAYS_NOTHING if spell(option.value) is None else key in _COARSE
        return (
            is_read
            or option == named
            or option.name in others
            or (option.name in {"sm", "split_mode"} and option.value in {"none", "layer"})
            or is_checkpointing_off(option.name, option.value)
            or any(file.name == option.value for file in files)
            or WEIGHTLESS.match(option.name) is not None
        )

    unused = [option for option in line.options if not is_used(option)]
    own = [f"--{name.replace('_', '-')}" for name in (*table, *OTHERS[family])] if family in OTHERS else []
    flags = [f"--{option.name.replace('_', '-').removeprefix('no-')}" for option in unused]
    meant = ["" if flag in own or len(flag) < SHORT else nearest(flag, own, cutoff=ALIKE) for flag in flags]
    return [f"{option.flag}{hint}" for option, hint in zip(unused, meant, strict=True)]


def _has(workload: Workload, key: str) -> bool:
    head, name = key.split(".")[:2]
    if head != "run" or name not in workload.run.__struct_fields__:
        return False
    return name == "lora" or isinstance(workload.run, ServeRun) or getattr(workload.run, name) is not None


def _changed(workload: Workload, key: str, value: object) -> Workload | None:
    """`workload` with one value; None if its run has no such key or already has as much."""
    tables: Any = msgspec.to_builtins(workload)
    *heads, last = key.split(".")
    table = tables
    for head in heads:
        if table.get(head) is None:
            if head != "parallel":
                return None  # adapters that the preset does not have: its own LoRA table would lack its layers
            table[head] = {}
        table = table[head]
    if heads[0] == "run" and last not in table:
        return None
    if key in _COARSE and str(table[last]).partition("-")[0] == str(value).partition("-")[0]:
        return None
    table[last] = value
    try:
        return msgspec.convert(tables, Workload)
    except msgspec.ValidationError:
        return None


def is_served(preset_file: PresetFile, command: str) -> bool:
    """Return whether an engine serves the model that a bundled preset trains or generates with."""
    if not preset_file.bundled or isinstance(preset_file.preset.run, ServeRun):
        return False
    program = takewhile(lambda word: not word.startswith("--"), read_command_line(command).words)
    return any(_SERVERS.search(word) for word in program)


@lru_cache(1)
def _defaults() -> dict[str, Any]:
    """Defaults of files' programs and of launchers: `defaults.toml`."""
    tables = toml.loads(Path(__file__).with_name("defaults.toml").read_text(encoding="utf-8"))
    for sets in (*tables["files"].values(), *(one["sets"] for one in tables["launchers"])):
        sets.update({"run.lora": None} if sets.get("run.lora") == "none" else {})
    return tables
