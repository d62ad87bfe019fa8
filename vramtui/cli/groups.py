"""The screen of `vramtui --help`; examples, exit codes and panels of each command's help; answers to wrong options."""

from collections.abc import Iterable
from copy import copy
from itertools import takewhile
from typing import Any

from typer.core import TyperCommand, TyperGroup, TyperOption

from vramtui.cli.common.exit_codes import BAD_INPUT, ErrorForm, exit_on_user_error, fail

SUMMARIES = {
    "estimate": "Estimate a job's memory and whether it fits a GPU",
    "fit": "Find GPUs, the largest batch and changes that make a job fit",
    "dry-run": "Run a script or server without its GPU and show its memory",
    "run": "Run a job on the GPU and show its memory by part and phase",
    "pick": "Print the GPU with the most room, for scripts",
    "oom": "Explain an out-of-memory error or a memory snapshot",
    "ps": "Show the processes on the GPUs and their memory",
    "record": "Record the GPUs, to replay or to send to another vramtui",
    "snapshot": "Write the state of the GPUs to files",
    "history": "Show past runs: predicted, observed and the difference",
    "export": "Export memory and predictions for Prometheus",
    "presets": "List, show, check and write presets",
    "doctor": "Check the driver and the machine; show the settings",
    "help": "Explain estimates, keys, files and options",
}


def help_screen() -> str:
    """Short help of the whole program; it fits a terminal of 80x24."""
    commands = (f"  {name:<10}{summary}" for name, summary in SUMMARIES.items())
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


EXAMPLES: dict[str, tuple[str, ...]] = {
    "ps": ("vramtui ps", "vramtui ps --watch --interval 2", "vramtui ps --json"),
    "snapshot": ("vramtui snapshot",),
    "record": ("vramtui record day.jsonl.gz", "ssh gpu01 vramtui record - | vramtui --feed -"),
    "export": ("vramtui export", "vramtui export --textfile /var/lib/node_exporter/vramtui.prom"),
    "estimate": (
        "vramtui estimate Qwen3-8B --gpu 4090",
        "vramtui estimate Qwen3-8B --lora --batch-size 4 --seq-len 4k --gpu 4090",
        "vramtui estimate --gpu 4090 -- vllm serve Qwen/Qwen3-8B --max-model-len 16384",
        "vramtui estimate train.sbatch --gpu h100",
    ),
    "fit": (
        "vramtui fit llama-3.1-8b-lora",
        "vramtui fit Llama-3.1-8B --train --gpu h100",
        "vramtui fit llama-3.1-70b-fsdp --gpu h100 --gpus 8",
    ),
    "dry-run": (
        "vramtui dry-run --gpu 4090 train.py --batch-size 16",
        "vramtui dry-run --gpu 4090,L40S,H100 train.py",
        "vramtui dry-run --gpu 8xH100 torchrun --nproc-per-node 8 train.py",
    ),
    "presets": ("vramtui presets list", "vramtui presets new mine --from config.json"),
    "run": (
        "vramtui run --preset llama-3.1-8b-lora -- python train.py",
        "vramtui run --predict -- python train.py",
        "vramtui run --when-fits --needs 38GiB -- python train.py",
    ),
    "pick": ("vramtui pick", "vramtui pick Qwen3-8B --quant 4bit", "vramtui pick --needs 38GiB --uuid"),
    "oom": ("vramtui oom train.log --preset llama-3.1-8b-lora", "vramtui oom snapshot.pickle"),
    "history": ("vramtui history --since 7d --failed", "vramtui history 12 --export run.html"),
    "help": ("vramtui help estimating llama-3.1-8b-lora", "vramtui help keys"),
    "doctor": ("vramtui doctor",),
}
EXIT_CODES = (
    "Exit codes: 0 success, 1 the answer is no (it does not fit, no GPU is free), 2 wrong use or input, 3 no GPU data, "
    "4 the answer is not known (unknown quantization or architecture)."
)
OWN_EXIT_CODES = {"doctor": "Exit codes: 0 it works, perhaps with warnings, 2 it does not work, or wrong use."}


# Options that each command's help shows first; the others follow under "More options".
COMMON = {
    "dry-run": {"gpu", "engine", "steps", "json"},
    "ps": {"json", "watch", "sort", "host", "demo"},
    "estimate": {"gpu", "memory", "train", "lora", "batch_size", "seq_len"},
    "fit": {"gpu", "train", "lora", "batch_size", "seq_len"},
    "record": {"duration", "host", "demo"},
    "snapshot": {"format", "formats", "folder", "host", "demo"},
    "history": {"preset", "since", "failed", "limit", "export", "json"},
    "export": {"listen", "textfile", "interval"},
    "pick": {"needs", "uuid", "json", "demo"},
}
MORE = "More options"


# Answers to extra words of a command.
MORE_WORDS = {
    "estimate": "estimate takes one model; vramtui fit A B compares several.",
}
# Options of other programs, and the command's own.
OTHER_OPTIONS = {
    ("export", "--port"): "--listen 127.0.0.1:PORT",
    **{("snapshot", f"--{kind}"): f"--format {kind}" for kind in ("md", "html", "json", "csv")},
    **{("snapshot", name): "vramtui snapshot FILE" for name in ("-o", "--output")},
    ("snapshot", "--png"): "vramtui snapshot FILE.html, which has the picture",
}
# Words that people type for a command of another name, and the hint.
OTHER_COMMANDS = {
    **dict.fromkeys(
        ("watch", "top", "dashboard", "tui", "ui", "gui", "start"), "The dashboard is vramtui without a command."
    ),
    "monitor": "The monitor without predictions is vramtui --monitor.",
    **dict.fromkeys(("plan", "timeline", "fleet"), "It is a screen of the dashboard: vramtui."),
    "demo": "The demo is vramtui --demo.",
    "replay": "To replay a recording: vramtui --replay FILE.",
    **dict.fromkeys(("version", "ver"), "Write vramtui --version."),
    **dict.fromkeys(("models", "list", "ls"), "All names: vramtui presets list."),
    **dict.fromkeys(
        ("cards", "gpus", "list-gpus"), "GPUs for a job: vramtui fit MODEL; this machine's GPUs: vramtui ps."
    ),
    **dict.fromkeys(("status", "smi", "processes", "kill"), "Processes: vramtui ps; the dashboard: vramtui."),
    **dict.fromkeys(("predict", "calc", "calculate", "size", "check", "info"), "Write vramtui estimate MODEL."),
    **dict.fromkeys(("trace", "profile", "simulate", "dryrun", "dry_run"), "Did you mean vramtui dry-run?"),
    **dict.fromkeys(("explain", "why"), "Write vramtui oom LOG, or vramtui help estimating MODEL."),
    "plot": "Write vramtui snapshot.",
}
JOB_FLAG = "seq_len"  # a parameter of every command that takes a job's flags
# The metavar of an option or argument without one, by its name.
_WORDS = {
    **dict.fromkeys(("replay", "token_file", "certificate", "key", "client_ca", "textfile", "file", "files"), "FILE"),
    **dict.fromkeys(("interval", "duration", "timeout"), "SECONDS"),
    **dict.fromkeys(("gpus", "top", "limit", "tabs", "steps", "ranks", "per_node"), "NUMBER"),
    **dict.fromkeys(("name", "host"), "NAME"),
    **dict.fromkeys(("gpu", "device"), "CARD"),
    "alloc_conf": "CONF",
    "filter": "WORDS",
    "formats": "FORMAT",
    "folder": "FOLDER",
    "memory": "SIZE",
    "method": "METHOD",
    "pid": "PID",
    "preset": "PRESET",
    "share": "PART",
    "sort": "COLUMN",
}


class WordedCommand(TyperCommand):
    """A command whose help names what each option takes, where Typer would write the Python type."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - whatever this version of Typer gives
        super().__init__(*args, **kwargs)
        _give_words(self.params)
        first, *examples = EXAMPLES.get(self.name or "", ("",))
        summary, *rest = (" ".join(paragraph.split()) for paragraph in (self.help or "").split("\n\n"))
        self.help = f"{first}\n\n{summary}".strip()
        self.epilog = "\n\n".join(filter(None, (*examples, *rest, self.epilog)))
        common = COMMON.get(self.name or "")
        for parameter in self.params if common else ():
            if isinstance(parameter, TyperOption):
                parameter.rich_help_panel = None if parameter.name in (common or ()) else MORE
        # `vramtui run python train.py --steps 1`: from its first word on the line is the job's own.
        self.allow_interspersed_args = self.name not in {"run", "dry-run"}

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - Typer's own, elsewhere in each version
        """Parse with Typer; an unknown option that is one of a job's is answered with how to give that to the command.
        With --json errors are JSON from here on.
        """
        given = list(args)
        ErrorForm.is_json = self._asks_for_json(given)
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
            other = OTHER_OPTIONS.get((self.name or "", option or ""))
            hint = "" if other is None else f". Write {other}"
            _word_types(error)
            if "unexpected extra argument" in getattr(error, "message", "") and self.name in MORE_WORDS:
                error.message += f" {MORE_WORDS[self.name]}"  # type: ignore[attr-defined]  # as below
            example = EXAMPLES.get(self.name or "", ("--help",))[0]
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

    def _asks_for_json(self, words: list[str]) -> bool:
        """Return whether `--json` is among the command's own words, before they are parsed."""
        own = takewhile(lambda word: word != "--" and (self.allow_interspersed_args or word[:1] == "-"), words)
        return "--json" in own and any(parameter.name == "json" for parameter in self.params)

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
    from pathlib import Path

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
            parameter.metavar = parameter.metavar or _WORDS.get(parameter.name)
            parameter.type = copy(parameter.type)
            parameter.type.get_metavar = lambda *_, **__: ""  # the metavar says it
        elif parameter.metavar is None and not (parameter.is_flag or hasattr(parameter.type, "choices")):
            parameter.metavar = _WORDS.get(parameter.name)
