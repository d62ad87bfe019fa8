"""Options that several commands take, values that Tab completes, and commands whose options are one frozen value."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:  # loading them takes as long as all of `vramtui --help`
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
