"""A command whose options are one frozen value: Typer is shown its fields as if they were the function's parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

if TYPE_CHECKING:  # loading it takes as long as all of `vramtui --help`
    from vramtui.presets.job_flags import JobFlag

OptionsT = TypeVar("OptionsT")
PANEL = "The job"


def command_of(
    options: type[OptionsT], *, flags: Iterable[JobFlag] = ()
) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Make a function of `options` into one that Typer can take a command from.

    Args:
        options: a frozen dataclass whose fields are annotated for Typer, or are such options; with `flags` it has
            a field `settings`.
        flags: flags of a job; what is given of them stands behind the values of `settings`, as `--batch-size=8`.
    """
    parameters = list(_parameters(options))
    named = {_parameter(flag): flag for flag in flags}
    parameters += [
        Parameter(
            name, Parameter.KEYWORD_ONLY, annotation=_annotation(flag), default=False if not flag.metavar else None
        )
        for name, flag in named.items()
    ]

    def with_function(function: Callable[[OptionsT], None]) -> Callable[..., None]:
        def command(**values: Any) -> None:  # noqa: ANN401 - what each option takes
            given = {name: values.pop(name) for name in named}
            if named:
                values["settings"] = [*(values["settings"] or []), *_write_options(named, given)]
            function(_filled(options, values))

        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]  # what `inspect.signature` asks for
        command.__annotations__ = {}
        return command

    return with_function


def job_flags(*without: str) -> tuple[JobFlag, ...]:
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


def _write_options(named: Mapping[str, JobFlag], given: Mapping[str, Any]) -> Iterator[str]:
    for name, value in given.items():
        if value is not None and value is not False:
            yield f"--{named[name].name}={'' if value is True else value}"


def _parameter(flag: JobFlag) -> str:
    return flag.name.replace("-", "_")


def _annotation(flag: JobFlag) -> Any:  # noqa: ANN401 - an annotation made at run time
    names = (f"--{flag.name}", *((f"-{flag.short}",) if flag.short else ()))
    if not flag.metavar:
        return Annotated[bool, typer.Option(*names, help=flag.help, rich_help_panel=PANEL)]
    return Annotated[str | None, typer.Option(*names, metavar=flag.metavar, help=flag.help, rich_help_panel=PANEL)]
