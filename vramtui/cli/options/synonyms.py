"""Words of a command line as this program spells them: other libraries' names of an option, and values left out."""

from collections.abc import Iterable, Iterator

from vramtui.presets.job_flags import SWITCHES, flag_named


def spell_words(words: Iterable[str]) -> list[str]:
    """`words` with each job's flag by its own name: `--dtype bf16` and `--bf16` are `--precision bf16`, and `--lora`
    without a rank has the usual one. What stands behind `--` belongs to another program.
    """
    return list(_own_words([*words]))


def _own_words(words: list[str]) -> Iterator[str]:
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "--":
            yield from words[at - 1 :]
            return
        name, equals, value = word.partition("=")
        if not name.startswith("-") or len(name.lstrip("-")) < 2:
            yield word
            continue
        switch = SWITCHES.get(name.lstrip("-").lower().replace("_", "-"))
        if switch is not None:
            yield f"--{switch[0]}={switch[1]}" if switch[1] else f"--{switch[0]}"
            at += at < len(words) and words[at].lower() == "true"
            continue
        flag = flag_named(name)
        if flag is None:
            yield word
        elif flag.metavar.startswith("[") and not equals:
            follows = at < len(words) and flag.is_value(words[at])
            yield f"--{flag.name}={words[at] if follows else flag.alone}"
            at += follows
        else:
            yield f"--{flag.name}{equals}{value}"
