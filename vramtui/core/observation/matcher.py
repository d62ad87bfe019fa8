"""Which preset a process is a run of: chosen by hand, or by the preset's own `[match]`.

A regular expression is searched for only in a command line that holds the words which every match must hold: looking
for those first costs little.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

import msgspec

from vramtui.core.observation.linear_regex import searcher
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Roster, Sample, process_key
from vramtui.core.schema.preset import Match, PresetFile

_PIECE = re.compile(
    r"\((?P<opened>\?(?::|=|!|<=|<!|P<\w+>|[aiLmsu]+:)|\?[aiLmsu]+\)|(?!\?))"
    r"|\\(?P<escaped>.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<repeat>[?*+]|\{\d*,?\d*\})|(?P<other>.)",
    re.DOTALL,
)
_CLASSES = "AbBdDsSwWZ"
SHORTEST = 2
# Characters that are searched for one sample, of all patterns together: some 50 ms, and a screen may wait for them.
# One command line of 4,096 characters may want seven times that of the bundled patterns.
SEARCHED_AT_ONCE = 1 << 16
# Beside ASCII these alone are taken for a letter of it where case is ignored (CPython 3.11's _casefix.py).
_LETTERS = str.maketrans({0x130: "i", 0x131: "i", 0x17F: "s", 0x212A: "k"})
REMEMBERED = 4096  # patterns: a matcher is made anew whenever presets are read, mostly of the same ones
SEARCHED = 4096
_Rules = tuple[tuple[int, tuple[str, ...], str], ...]
_Texts = tuple[tuple[str, str], ...]
_Answer = tuple[str | None, ...]


class _Group:
    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.words: list[str] = []
        self.run = ""
        self.last: list[str] = []

    def end_run(self) -> None:
        """What was read last is required after all: no repetition of it followed."""
        self.words += [self.run, *self.last]
        self.run, self.last = "", []

    def repeat(self, *, at_least_once: bool) -> None:
        """A repetition of what was read last."""
        if not at_least_once:
            self.run, self.last = self.run[:-1], []
        self.end_run()

    def read(self, character: str, *, literally: bool) -> None:
        """A character, or where it is not meant `literally` something that is no word."""
        if self.last or not literally or not character.isascii():
            self.end_run()
        if literally and character.isascii():
            self.run += character.lower()


@lru_cache(REMEMBERED)
def required_words(pattern: str) -> tuple[str, ...]:
    """Words of two characters or more, in lower case, that every text in which `pattern` is found holds, the longest
    first. Some of them: where the pattern is not understood there are none.
    """
    groups = [_Group(counts=True)]
    at = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            return ()
        at = piece.end()
        if not _take(groups, piece):
            return ()
    if len(groups) != 1 or not groups[0].counts:
        return ()
    groups[0].end_run()
    words = {word for word in groups[0].words if len(word) >= SHORTEST}
    return tuple(sorted(words, key=lambda word: (-len(word), word)))


def _take(groups: list[_Group], piece: re.Match[str]) -> bool:
    """Read one piece; False where it is not understood."""
    group, kind, text = groups[-1], piece.lastgroup, piece[0]
    if kind == "opened":
        group.end_run()
        if not text.endswith(")"):
            groups.append(_Group(counts=text not in ("(?!", "(?<!")))
    elif kind == "repeat":
        group.repeat(at_least_once=text == "+")
    elif kind == "escaped":
        if text[1] not in _CLASSES and text[1].isalnum():
            return False
        group.read(text[1], literally=not text[1].isalnum())
    elif kind == "other":
        return _take_other(groups, text)
    else:
        group.end_run()
    return True


def _take_other(groups: list[_Group], character: str) -> bool:
    if character == ")" and len(groups) > 1:
        closed = groups.pop()
        closed.end_run()
        groups[-1].last = closed.words if closed.counts else []
    elif character == "|":
        groups[-1].counts = False
    else:
        groups[-1].read(character, literally=character not in ".^$")
    return character != "("


class Candidate(msgspec.Struct, frozen=True):
    """A preset that can know its process by itself, of which no more has been read."""

    key: str
    bundled: bool
    match: Match


Adapt = Callable[[PresetFile, str], PresetFile | None]


def _as_found(found: PresetFile, command: str) -> PresetFile:
    del command
    return found


class Matcher:
    """Matches processes to presets and remembers the answers, so that a sample costs little more than its new
    processes.

    A choice by hand wins (None there means: no preset, whatever `[match]` says). Among presets that match by
    themselves, the user's own come before bundled ones, then the order of their keys decides; so the answer does
    not depend on the order of processes or files.

    Args:
        presets: those that are known.
        adapt: puts the values of a process's command line into the preset that it matched by itself; None where that
            line runs something else after all.
        at_once: characters that are searched for one sample. What is left over is searched with the next samples, the
            shortest command lines first; None searches all.
    """

    def __init__(self, presets: Iterable[PresetFile], adapt: Adapt = _as_found, *, at_once: int | None = None) -> None:
        self._adapt = adapt
        self._at_once = at_once
        known = {found.key: found for found in presets}
        candidates = [Candidate(one.key, one.bundled, one.preset.match) for one in known.values() if one.preset.match]
        self._prepare(candidates, known.get)

    @classmethod
    def of_candidates(
        cls, candidates: Iterable[Candidate], get: Callable[[str], PresetFile | None], adapt: Adapt = _as_found
    ) -> "Matcher":
        """One that reads a preset, with `get`, when a process is found that runs it."""
        made = cls((), adapt)
        made._prepare(candidates, get)
        return made

    def _prepare(self, candidates: Iterable[Candidate], get: Callable[[str], PresetFile | None]) -> None:
        ordered = sorted(candidates, key=lambda one: (one.bundled, one.key))
        self._get = get
        self._rules = [(one.key, _rules(one.match)) for one in ordered]
        self._answers: dict[_Answer, PresetFile | None] = {}
        self._begun: dict[_Answer, int] = {}
        self._seen: dict[tuple[str, str], tuple[Roster | None, dict[ProcessKey, PresetFile]]] = {}
        self._by_hand: Mapping[ProcessKey, str | None] = {}
        self._matched: Mapping[ProcessKey, PresetFile] = {}

    def match(self, sample: Sample, by_hand: Mapping[ProcessKey, str | None]) -> Mapping[ProcessKey, PresetFile]:
        """The preset of every process in `sample` that has one: the same object again while every process, also of
        those without a preset, is the one it was.
        """
        if not self._rules and not by_hand:
            return {}
        seen, same = {}, by_hand == self._by_hand
        host = sample.host.name
        last = {gpu.uuid: self._seen.get((host, gpu.uuid)) for gpu in sample.gpus}
        # On most cards nobody comes or goes; a source that makes its rosters anew has them compared, and once only.
        kept = [(known := last[gpu.uuid]) is not None and known[0] == gpu.roster for gpu in sample.gpus]
        self._search_all([gpu for gpu, is_kept in zip(sample.gpus, kept, strict=True) if not is_kept])
        for gpu, is_kept in zip(sample.gpus, kept, strict=True):
            known = last[gpu.uuid]
            if known is None or not is_kept:
                found, whole = self._match(host, gpu)
                # What is not searched yet is asked for again with the next sample.
                known, same = (gpu.roster if whole else None, found), False
            seen[host, gpu.uuid] = known
        same = same and seen.keys() == self._seen.keys()
        self._seen = seen
        if same:
            return self._matched
        matched: dict[ProcessKey, PresetFile] = {}
        for _, here in seen.values():
            matched.update(here)
        for key in by_hand.keys() & _keys_of(sample, by_hand):
            matched.pop(key, None)
            chosen = self._get(by_hand[key] or "")
            if chosen is not None:
                matched[key] = chosen
        self._by_hand, self._matched = dict(by_hand), matched
        return matched

    def _match(self, host: str, gpu: Gpu) -> tuple[dict[ProcessKey, PresetFile], bool]:
        """The presets of a card's processes as far as they are known, and whether they all are."""
        found: dict[ProcessKey, PresetFile] = {}
        whole = True
        for process in gpu.processes:
            text = _matched_by(gpu, process)
            preset = self._answers.get(text)
            if preset is not None:
                found[process_key(host, gpu, process)] = preset
            whole = whole and (preset is not None or text in self._answers)
        return found, whole

    def _search_all(self, gpus: list[Gpu]) -> None:
        """Find the presets of the processes on these cards, or of as many as may be looked into at once. Jobs are
        started in hundreds: each distinct text is searched once.
        """
        if len(self._answers) > 1 << 16:
            self._answers.clear()
        wanted = {_matched_by(gpu, process): (gpu, process) for gpu in gpus for process in gpu.processes}
        new = [text for text in wanted if text not in self._answers]
        left = self._at_once
        for text in sorted(new, key=lambda text: len(text[0] or "")):
            if left is not None and left <= 0:
                break
            spent = self._search(text, *wanted[text], left)
            left = None if left is None else left - spent
        self._begun = {text: at for text, at in self._begun.items() if text in wanted}

    def _search(self, text: _Answer, gpu: Gpu, process: Process, most: int | None) -> int:
        """Look for the first preset whose own rules hold, and go on next time after so many characters searched.

        Returns:
            How many were.
        """
        texts, command, spent = _texts(gpu, process), (process.command or "")[:SEARCHED], 0
        for at in range(self._begun.pop(text, 0), len(self._rules)):
            key, rules = self._rules[at]
            if not _may_hold(rules, texts):
                continue
            if most is not None and spent >= most:
                self._begun[text] = at
                return spent
            spent += sum(len(texts[number][0]) for number, _, _ in rules)
            preset = self._get(key) if _holds(rules, texts) else None
            found = None if preset is None else self._adapt(preset, command)
            if found is not None:
                self._answers[text] = found.as_loaded(process.module_loading)
                return spent
        self._answers[text] = None
        return spent


def _matched_by(gpu: Gpu, process: Process) -> _Answer:
    """What of a process decides which preset it runs."""
    return (process.command, process.name, process.user, gpu.name, process.module_loading)


def _keys_of(sample: Sample, by_hand: Mapping[ProcessKey, str | None]) -> set[ProcessKey]:
    """Keys of the processes in `sample` that share a pid with a choice made by hand."""
    pids = {key.pid for key in by_hand}
    if not pids:
        return set()
    return {
        process_key(sample.host.name, gpu, process)
        for gpu in sample.gpus
        for process in gpu.processes
        if process.pid in pids
    }


def matches(match: Match, gpu: Gpu, process: Process) -> bool:
    """Whether every rule of `match` holds; a match without rules holds for nothing."""
    rules, texts = _rules(match), _texts(gpu, process)
    return _may_hold(rules, texts) and _holds(rules, texts)


def _rules(match: Match) -> _Rules:
    given = enumerate((match.command, match.user, match.gpu))
    return tuple((number, required_words(pattern), pattern) for number, pattern in given if pattern is not None)


def _texts(gpu: Gpu, process: Process) -> _Texts:
    """What the rules are searched in, and that in lower case. A hostile command line is bounded before a pattern runs
    over it.
    """
    texts = ((process.command_or_name or "")[:SEARCHED], process.user or "", gpu.name)
    return tuple((text, (text if text.isascii() else text.translate(_LETTERS)).lower()) for text in texts)


def _may_hold(rules: _Rules, texts: _Texts) -> bool:
    """Whether the texts have the words without which no pattern is found."""
    for number, words, _ in rules:  # loops, not `all(...)`: this runs for every process and every preset
        plain = texts[number][1]
        for word in words:
            if word not in plain:
                return False
    return bool(rules)


def _holds(rules: _Rules, texts: _Texts) -> bool:
    return all(searcher(pattern)(texts[number][0]) for number, _, pattern in rules)
