"""Options that several commands take, values that Tab completes, and commands whose options are one frozen value."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from vramtui.cli.common.exit_codes import BAD_INPUT, ErrorForm, exit_on_user_error, fail

if TYPE_CHECKING:
    from vramtui.cli.common.open_source import OtherHosts
    from vramtui.presets.job_flags import JobFlag


VARIABLE = "_VRAMTUI_COMPLETE"


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin with `incomplete`, or else of downloaded models."""
    from vramtui.presets import PresetLibrary

    keys = _beginning(PresetLibrary().keys(), incomplete)
    if keys:
        return keys
    from vramtui.models.stores.local_models import local_models

    return _beginning(local_models(), incomplete)


def cards(incomplete: str) -> list[str]:
    """Names of GPUs that begin with `incomplete`."""
    from vramtui.core.estimate.devices import ALIASES, CARDS

    return _beginning((*CARDS, *ALIASES), incomplete)


def setting_keys(incomplete: str) -> list[str]:
    """Keys of a training run, an inference run, a server and their sharing, ready for a value."""
    from vramtui.core.schema.workload import InferRun, Parallel, ServeRun, TrainRun

    runs = dict.fromkeys(name for kind in (TrainRun, InferRun, ServeRun) for name in kind.__struct_fields__)
    keys = (*(f"run.{name}=" for name in runs), *(f"parallel.{name}=" for name in Parallel.__struct_fields__))
    return _beginning((*keys, *(key.partition(".")[2] for key in keys)), incomplete)


def scripts(incomplete: str) -> list[str]:
    """Names of presets that begin with `incomplete`; none for an empty word, so that the shell offers files."""
    return presets(incomplete) if incomplete else []


def methods(incomplete: str) -> list[str]:
    """Methods of estimating that begin with `incomplete`."""
    from vramtui.estimators.methods import METHODS
    from vramtui.estimators.rules import RULES

    named = (method for method in METHODS if method != "rules:ID")
    return _beginning((*named, *(f"rules:{rule}" for rule in RULES)), incomplete)


def sort_keys(incomplete: str) -> list[str]:
    """Columns of processes that begin with `incomplete`."""
    from vramtui.app.state.rows import SORT_KEYS

    return _beginning(SORT_KEYS, incomplete)


def beginning(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes with the `names` that begin with the word."""
    return lambda incomplete: _beginning(names, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


MODELS = "A preset, a model's name, or a path."
JobName = Annotated[str, typer.Argument(metavar="PRESET", help=MODELS, autocompletion=presets)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change any value: run.max_grad_norm=1.", autocompletion=setting_keys
    ),
]
Card = Annotated[
    str | None, typer.Option(metavar="CARD", help="The GPU to fit: 4090, H100, 24GB.", autocompletion=cards)
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="The memory to fit: 24GB.")]
JobFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Read the run's settings from a file of accelerate, DeepSpeed or another trainer."
    ),
]
Hub = Annotated[bool, typer.Option("--hub", help="Ask huggingface.co for a model's config and headers.")]
Feed = Annotated[
    str | None, typer.Option(metavar="PATH|-", help="Read what `vramtui record -` sends; - is standard input.")
]
Gpus = Annotated[
    str | None,
    typer.Option(metavar="GPUS", help="Only these GPUs: 0,2 or uuids; `visible` means CUDA_VISIBLE_DEVICES."),
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")]


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """The GPU that a job has to fit."""

    gpu: Card = None
    memory: Memory = None
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65536,
            help="GPUs that share the job: training by FSDP, inference by tensor parallel, or as it fits.",
        ),
    ] = None

    @property
    def asks(self) -> bool:
        """Return whether a GPU or a size was named."""
        return self.gpu is not None or self.memory is not None


HostOption = Annotated[
    list[str] | None, typer.Option("--host", metavar="NAME", help="Other machines, by ssh: gpu01, gpu[02-16], @group.")
]


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """The machines to watch instead of this one."""

    host: HostOption = None
    slurm: Annotated[
        str | None,
        typer.Option("--slurm", metavar="JOBID", help="The hosts of a running Slurm job, by srun --overlap or ssh."),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="Hosts whose dcgm-exporter this Prometheus scrapes."),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", help="With --prometheus: a file with its bearer token (https or loopback only)."),
    ] = None

    @property
    def elsewhere(self) -> "OtherHosts":
        """The chosen hosts as what opens them."""
        from vramtui.cli.common.open_source import OtherHosts

        return OtherHosts(self.host, self.slurm, self.prometheus, self.token_file)


NO_HOSTS = HostOptions()


Demo = Annotated[bool, typer.Option("--demo", help="Use the built-in demo host.")]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The source of one sample; this machine by default."""

    demo: Demo = False
    replay: Annotated[Path | None, typer.Option(help="Read a recording instead of this machine.")] = None
    hosts: HostOptions = NO_HOSTS


THIS_MACHINE = SourceOptions()


OptionsT = TypeVar("OptionsT")
PANEL = "The job"


def command_of(
    options: type[OptionsT], *, flags: "Iterable[JobFlag]" = ()
) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Make a function of `options` into one that Typer can take a command from."""
    parameters = list(_parameters(options))
    named = {flag.name.replace("-", "_"): flag for flag in flags}
    for name, flag in named.items():
        names = (f"--{flag.name}", *((f"-{flag.short}",) if flag.short else ()))
        kind, metavar = (str | None, flag.metavar) if flag.metavar else (bool, None)
        annotation: Any = Annotated[kind, typer.Option(*names, metavar=metavar, help=flag.help, rich_help_panel=PANEL)]
        default = None if flag.metavar else False
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default))

    def with_function(function: Callable[[OptionsT], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:  # noqa: ANN401 - what each option takes
            given = {flag.name: values.pop(name) for name, flag in named.items()}
            if named:
                written = (
                    f"--{name}={'' if value is True else value}"
                    for name, value in given.items()
                    if value is not None and value is not False
                )
                values["settings"] = [*(values["settings"] or []), *written]
            function(_filled(options, values))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` asks for
        command.__annotations__ = {}
        return command

    return with_function


def job_flags(*without: str) -> "tuple[JobFlag, ...]":
    """The flags of a job, but for those that a command has as options of its own."""
    from vramtui.presets.job_flags import FLAGS  # only for commands that take a job's flags

    return tuple(flag for flag in FLAGS if flag.name not in without)


def _fields(options: type[Any]) -> Iterator[tuple[Field[Any], Any]]:
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        yield field, hints[field.name]


def _parameters(options: type[Any]) -> Iterator[Parameter]:
    """One for each field; a field that is options itself stands for theirs."""
    for field, hint in _fields(options):
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _parameters(hint)
        else:
            default = Parameter.empty if field.default is MISSING else field.default
            yield Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _filled(options: type[OptionsT], values: Mapping[str, Any]) -> OptionsT:
    given = {
        field.name: _filled(hint, values) if isinstance(hint, type) and is_dataclass(hint) else values[field.name]
        for field, hint in _fields(options)
        if field.name in values or is_dataclass(hint)
    }
    return options(**given)


# Of each command its summary, examples, the options that its help shows first, and answers to what people type for it.
COMMANDS = json.loads(Path(__file__).with_name("commands.json").read_text(encoding="utf-8"))
_WORDS: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
METAVARS, OTHER_COMMANDS = ({word: text for text, words in _WORDS[key].items() for word in words} for key in _WORDS)


def help_screen() -> str:
    """Short help of the whole program; it fits a terminal of 80x24."""
    commands = (f"  {name:<10}{command['summary']}" for name, command in COMMANDS.items())
    return "\n".join(
        (
            "Usage: vramtui [OPTIONS] [COMMAND]",
            "",
            "  vramtui                                 dashboard of this machine's GPUs",
            "  vramtui --demo                          dashboard of a demo host",
            "  vramtui estimate Qwen3-8B --gpu 4090    does it fit?",
            "",
            *commands,
            "",
            "More: vramtui COMMAND --help, and vramtui help options for the dashboard.",
        )
    )


EXIT_CODES = (
    "Exit codes: 0 success, 1 the answer is no (it does not fit, no GPU is free), 2 wrong use or input, 3 no GPU data, "
    "4 the answer is not known (unknown quantization or architecture)."
)
OWN_EXIT_CODES = {"doctor": "Exit codes: 0 it works, perhaps with warnings, 2 it does not work, or wrong use."}


MORE = "More options"


JOB_FLAG = "seq_len"  # a parameter of every command that takes a job's flags


class WordedCommand(TyperCommand):
    """A command whose help names what each option takes, where Typer would write the Python type."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever this version of Typer gives
        super().__init__(*args, **kwargs)
        _give_words(self.params)
        self.words = COMMANDS.get(self.name or "", {})
        first, *examples = self.words.get("examples", [""])
        summary, *rest = (" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        self.help = f"{first}\n\n{summary}".strip()
        self.epilog = "\n\n".join(filter(None, (*examples, *rest, self.epilog)))
        common = self.words.get("common", ())
        for parameter in self.params if common else ():
            if isinstance(parameter, TyperOption):
                parameter.rich_help_panel = None if parameter.name in common else MORE
        # `vramtui run python train.py --steps 1`: from its first word on the line is the job's own.
        self.allow_interspersed_args = self.name not in {"run", "dry-run"}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own, elsewhere in each version
        """Parse with Typer; an unknown option that is one of a job's is answered with how to give that to the command.
        With --json errors are JSON from here on.
        """
        given = list(args)
        own = takewhile(lambda word: word != "--" and (self.allow_interspersed_args or word[:1] == "-"), given)
        ErrorForm.is_json = "--json" in own and any(parameter.name == "json" for parameter in self.params)
        if any(parameter.name == JOB_FLAG for parameter in self.params):
            from vramtui.cli.synonyms import spell_words, with_command, with_each_once

            known = {name: parameter for parameter in self.params for name in parameter.opts}
            single = {
                name: max(one.opts, key=len)
                for name, one in known.items()
                if name.startswith("-") and not (getattr(one, "is_flag", False) or getattr(one, "multiple", False))
            }
            with exit_on_user_error():
                args = with_each_once(spell_words(with_command(args), known), single, joins=self.name == "estimate")
        try:
            rest = super().parse_args(ctx, args)
            ErrorForm.is_json = bool(ctx.params.get("json"))
            ctx.call_on_close(ErrorForm.end)
        except Exception as error:
            option = getattr(error, "option_name", None)
            other = self.words.get("other_options", {}).get(option)
            hint = "" if other is None else f". Write {other}"
            _word_types(error)
            if "unexpected extra argument" in getattr(error, "message", "") and "extra_words" in self.words:
                error.message += f" {self.words['extra_words']}"  # type: ignore[attr-defined]  # as below
            example = self.words.get("examples", ["--help"])[0]
            if type(error).__name__ == "MissingParameter" and not example.endswith("--help"):
                error.message = f"As in: {example}"  # type: ignore[attr-defined]  # as below
            if hint:
                error.message += hint  # type: ignore[attr-defined]  # Typer's UsageError has it
                error.possibilities = None  # type: ignore[attr-defined]  # names that are merely spelt alike
            if ErrorForm.is_json and hasattr(error, "format_message"):
                fail(BAD_INPUT, error.format_message())
            ErrorForm.end()
            raise
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own, elsewhere in each version
        """The words behind the command's name; Typer 0.28 puts braces around those that have to be there."""
        return [piece[1:-1] if piece[:1] == "{" else piece for piece in super().collect_usage_pieces(ctx)]


class WordedGroup(TyperGroup):
    """A command with subcommands whose wrong options and words are answered with what is meant."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever this version of Typer gives
        super().__init__(*args, **kwargs)
        _give_words(self.params)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as above
        """Parse with Typer; errors name types in words."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            _word_types(error)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Resolve with Typer; an unknown command is answered with its most likely meaning."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            if ctx.parent is None and hasattr(error, "message") and (meant := _meant_command(args[0])):
                error.message = f"No such command '{args[0]}'. {meant}"
            raise


def _word_types(error: Exception) -> None:
    """Click's name of a type in words: a float range is a number."""
    message = getattr(error, "message", None)
    if isinstance(message, str):
        for name, word in (("float range", "number"), ("int range", "whole number")):
            message = message.replace(f"is not a valid {name}", f"is not a {word}")
        error.message = message  # type: ignore[attr-defined]  # as above


def _meant_command(word: str) -> str:
    """The hint for an unknown command `word`, or empty."""
    if word.lower() in OTHER_COMMANDS:
        return OTHER_COMMANDS[word.lower()]
    if word.endswith(".py"):
        return f"Did you mean vramtui dry-run {word}, or vramtui run python {word}?"
    if ".jsonl" in word:
        return f"To replay a recording: vramtui --replay {word}."
    is_model = "/" in word or any(letter.isdigit() for letter in word) or Path(word).exists()
    return f"For a model: vramtui estimate {word}." if is_model else ""


def _give_words(parameters: Iterable[Any]) -> None:
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or METAVARS.get(parameter.name)
            parameter.type = copy(parameter.type)
            parameter.type.get_metavar = lambda *_, **__: ""  # the metavar says it
        elif parameter.metavar is None and not (parameter.is_flag or hasattr(parameter.type, "choices")):
            parameter.metavar = METAVARS.get(parameter.name)
