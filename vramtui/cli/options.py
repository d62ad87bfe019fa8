"""The options of all commands (options.json), values that Tab completes, and the help and errors of commands."""

import json
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from importlib import import_module
from inspect import Parameter, Signature, signature
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from vramtui.cli.common.exit_codes import BAD_INPUT, ErrorForm, exit_on_user_error, fail

if TYPE_CHECKING:
    from vramtui.presets.job_flags import JobFlag


VARIABLE = "_VRAMTUI_COMPLETE"
# Of each function of a command, and of "" that several share, the options and arguments by their parameters' names.
_TABLES: dict[str, dict[str, dict[str, Any]]]
_TABLES = json.loads(Path(__file__).with_name("options.json").read_text(encoding="utf-8"))


def _completed(kind: str) -> Callable[[str], list[str]]:
    """Complete with the names of a kind that begin with the word: those of the first list that has some."""

    def lists() -> Iterator[Iterable[str]]:
        if kind == "presets":
            from vramtui.models.stores.local_models import local_models
            from vramtui.presets import PresetLibrary

            yield PresetLibrary().keys()
            yield local_models()
        elif kind == "cards":
            from vramtui.core.estimate.devices import ALIASES, CARDS

            yield (*CARDS, *ALIASES)
        elif kind == "settings":
            from vramtui.core.schema.workload import InferRun, Parallel, ServeRun, TrainRun

            runs = dict.fromkeys(name for kind in (TrainRun, InferRun, ServeRun) for name in kind.__struct_fields__)
            keys = (*(f"run.{name}=" for name in runs), *(f"parallel.{name}=" for name in Parallel.__struct_fields__))
            yield (*keys, *(key.partition(".")[2] for key in keys))
        elif kind == "methods":
            from vramtui.estimators.methods import METHODS
            from vramtui.estimators.rules import RULES

            yield (*(method for method in METHODS if method != "rules:ID"), *(f"rules:{rule}" for rule in RULES))
        else:  # MODULE:NAME
            module, _, name = kind.partition(":")
            yield getattr(import_module(f"vramtui.{module}"), name)

    def complete(incomplete: str) -> list[str]:
        starting = ([name for name in names if name.startswith(incomplete)] for names in lists())
        return next(filter(None, starting), [])

    return complete


def command_of(function: Callable[..., None], *, flags: "Iterable[JobFlag]" = ()) -> Callable[..., None]:
    """Make a function into one that Typer can take a command from: its parameters have the options of options.json. A
    parameter whose type is a NamedTuple stands for the options that are its fields.
    """
    own = _TABLES.get(function.__name__, {})
    parameters = []

    def is_group(kind: object) -> bool:
        return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")

    def spread(kind: Any) -> Iterator[Parameter]:  # noqa: ANN401 - a function or a NamedTuple
        for parameter in signature(kind).parameters.values():
            if is_group(parameter.annotation):
                yield from spread(parameter.annotation)
            else:
                yield parameter

    for parameter in spread(function):
        words, kind = own.get(parameter.name) or _TABLES[""].get(parameter.name), parameter.annotation
        if words is not None:
            given = {key: value for key, value in words.items() if key not in {"argument", "names", "complete"}}
            if "complete" in words:
                given["autocompletion"] = _completed(words["complete"])
            if words.get("argument"):
                kind = Annotated[kind, typer.Argument(**given)]
            else:
                names = words.get("names", f"--{parameter.name.replace('_', '-')}")
                kind = Annotated[kind, typer.Option(*names.split(), **given)]
        parameters.append(parameter.replace(annotation=kind, kind=Parameter.KEYWORD_ONLY))
    named = {flag.name.replace("-", "_"): flag for flag in flags}
    for name, flag in named.items():
        names = (f"--{flag.name}", *((f"-{flag.short}",) if flag.short else ()))
        kind, metavar = (str | None, flag.metavar) if flag.metavar else (bool, None)
        annotation: Any = Annotated[
            kind, typer.Option(*names, metavar=metavar, help=flag.help, rich_help_panel="The job")
        ]
        default = None if flag.metavar else False
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default))

    def filled(kind: Any, values: dict[str, Any]) -> Any:  # noqa: ANN401 - an instance of the NamedTuple
        given = {
            name: filled(parameter.annotation, values) if is_group(parameter.annotation) else values[name]
            for name, parameter in signature(kind).parameters.items()
            if name in values or is_group(parameter.annotation)
        }
        return kind(**given)

    def command(**values: Any) -> None:  # noqa: ANN401 - what each option takes
        given = {flag.name: values.pop(name) for name, flag in named.items()}
        if named:
            written = (
                f"--{name}={'' if value is True else value}"
                for name, value in given.items()
                if value is not None and value is not False
            )
            values["settings"] = [*(values["settings"] or []), *written]
        filled(function, values)

    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` asks for
    command.__annotations__ = {}
    return command


def job_command(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `command_of`, with the flags of a job but for those that the command has as options of its own."""
    from vramtui.presets.job_flags import FLAGS  # only for commands that take a job's flags

    return partial(command_of, flags=[flag for flag in FLAGS if flag.name not in without])


# Of each command its summary, examples, the options that its help shows first, and answers to what people type for it.
COMMANDS = json.loads(Path(__file__).with_name("commands.json").read_text(encoding="utf-8"))


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


class WordedCommand(TyperCommand):
    """A command whose help begins with an example and the options that matter most, and whose errors say what to do."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever this version of Typer gives
        super().__init__(*args, **kwargs)
        self.words = COMMANDS.get(self.name or "", {})
        first, *examples = self.words.get("examples", [""])
        summary, *rest = (" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        self.help = f"{first}\n\n{summary}".strip()
        self.epilog = "\n\n".join(filter(None, (*examples, *rest, self.epilog)))
        common = self.words.get("common", ())
        for parameter in self.params:
            if not isinstance(parameter, TyperOption):
                parameter.type = copy(parameter.type)
                parameter.type.get_metavar = lambda *_, **__: ""  # type: ignore[method-assign]  # its name says it
            elif common:
                parameter.rich_help_panel = None if parameter.name in common else MORE
        # `vramtui run python train.py --steps 1`: from its first word on the line is the job's own.
        self.allow_interspersed_args = self.name not in {"run", "dry-run"}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own, elsewhere in each version
        """Parse with Typer; an unknown option that is one of a job's is answered with how to give that to the command.
        With --json errors are JSON from here on.
        """
        own = takewhile(lambda word: word != "--" and (self.allow_interspersed_args or word[:1] == "-"), args)
        ErrorForm.is_json = "--json" in own and any(parameter.name == "json" for parameter in self.params)
        if any(parameter.name == "seq_len" for parameter in self.params):  # a job's flags
            from vramtui.cli.synonyms import spell_words, with_command, with_each_once, with_one_name

            known = {name: parameter for parameter in self.params for name in parameter.opts}
            single = {
                name: max(one.opts, key=len)
                for name, one in known.items()
                if name.startswith("-") and not (getattr(one, "is_flag", False) or getattr(one, "multiple", False))
            }
            args = with_each_once(spell_words(with_command(args), known), single, joins=self.name == "estimate")
            args = args if self.name == "fit" else with_one_name(args)
        try:
            rest = super().parse_args(ctx, args)
        except Exception as raised:
            error: Any = raised  # a UsageError of click, which Typer brings along
            if hasattr(error, "message"):
                # What to write instead.
                example = self.words.get("examples", ["--help"])[0]
                if type(error).__name__ == "MissingParameter" and not example.endswith("--help"):
                    error.message = f"As in: {example}"
                else:
                    error.message = in_words(error.message)
                    if "unexpected extra argument" in error.message and "extra_words" in self.words:
                        error.message += f". {self.words['extra_words']}"
                    if other := self.words.get("other_options", {}).get(getattr(error, "option_name", None)):
                        error.message += f". Write {other}"
                        error.possibilities = None  # names that are merely spelt alike
            if ErrorForm.is_json and hasattr(error, "format_message"):
                fail(BAD_INPUT, error.format_message())
            raise
        ErrorForm.is_json = bool(ctx.params.get("json"))
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ANN401 - Typer's own, elsewhere in each version
        """The words behind the command's name; Typer 0.28 puts braces around those that have to be there."""
        return [piece[1:-1] if piece[:1] == "{" else piece for piece in super().collect_usage_pieces(ctx)]


class WordedGroup(TyperGroup):
    """The program: makes errors sentences and exit codes, and answers unknown commands with what is meant."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - as above
        try:
            with exit_on_user_error():
                return super().invoke(ctx)
        finally:
            ErrorForm.is_json = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - as above
        """Parse with Typer; errors name types in words."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            if hasattr(error, "message"):
                error.message = in_words(error.message)
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - as above
        """Resolve with Typer; an unknown command is answered with its most likely meaning."""
        try:
            return super().resolve_command(ctx, args)
        except Exception as error:
            word, meant = args[0], ""
            others = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
            if word.endswith(".py"):
                meant = f"Did you mean vramtui dry-run {word}, or vramtui run python {word}?"
            elif ".jsonl" in word:
                meant = f"To replay a recording: vramtui --replay {word}."
            elif "/" in word or any(letter.isdigit() for letter in word) or Path(word).exists():
                meant = f"For a model: vramtui estimate {word}."
            name = word.lower() if ctx.parent is None else f"{ctx.info_name} {word.lower()}"
            meant = next((text for text, words in others.items() if name in words), meant if ctx.parent is None else "")
            if meant and hasattr(error, "message"):
                error.message = f"No such command '{word}'. {meant}"
            raise


def in_words(message: str) -> str:
    """Click's names of types in words: a float range is a number."""
    message = message.replace("is not a valid float range", "is not a number")
    return message.replace("is not a valid int range", "is not a whole number")
