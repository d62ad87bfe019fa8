"""Which preset a process is a run of: chosen by hand, or by the words of the preset's own `[match]`."""

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property
from itertools import chain

import msgspec

from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample, process_key
from vramtui.core.schema.preset import Match, PresetFile

MOST_SEARCHED = 4096  # characters of a command line
# The latest answers are kept: so many, or twice as many as there are processes. Each holds a command line.
LEAST_ANSWERS = 1024
_Answer = tuple[object, ...]
ByHand = Mapping[ProcessKey, str | None]  # the keys of presets that a person chose; None: none
Matched = Mapping[ProcessKey, PresetFile]


class Candidate(msgspec.Struct, frozen=True):
    """The match rules of a preset that is not read yet."""

    key: str
    bundled: bool
    match: Match


Adapt = Callable[[PresetFile, str, bool], PresetFile | None]


class Matcher:
    """Matches processes to presets and remembers the answers, so that a sample costs little more than its new
    processes.

    A choice by hand wins (None there means: no preset, whatever `[match]` says). Among presets that match by
    themselves, the user's own come before bundled ones, then the order of their keys decides; so the answer does
    not depend on the order of processes or files. `adapt` puts the values of a process's command line into its preset,
    which a person chose or not; None if that line runs something else after all. Of the further `candidates`, taken at
    the first process, each is read, with `get`, when a process runs it.
    """

    def __init__(
        self,
        presets: Iterable[PresetFile],
        adapt: Adapt = lambda preset_file, _command, _is_chosen: preset_file,
        candidates: Iterable[Candidate] = (),
        get: Callable[[str], PresetFile | None] | None = None,
    ) -> None:
        known = {preset_file.key: preset_file for preset_file in presets}
        own = [Candidate(one.key, one.bundled, one.preset.match) for one in known.values() if one.preset.match]
        self._adapt, self._get, self._candidates = adapt, get or known.get, chain(own, candidates)
        self._answers: OrderedDict[_Answer, PresetFile | None] = OrderedDict()

    @cached_property
    def _rules(self) -> "list[tuple[str, _Rule]]":
        ordered = sorted(self._candidates, key=lambda one: (one.bundled, one.key))
        return [(one.key, _Rule(one.match)) for one in ordered]

    def match(self, sample: Sample, by_hand: ByHand) -> Matched:
        """The preset of every process in `sample` that has one."""
        matched: dict[ProcessKey, PresetFile] = {}
        if not any(gpu.processes for gpu in sample.gpus) or (not self._rules and not by_hand):
            return matched
        pids = {key.pid for key in by_hand}
        texts: list[_Answer | None] = []
        distinct: dict[_Answer, _Answer] = {}  # a process may be on every GPU
        new: dict[_Answer, tuple[Gpu, Process, PresetFile | None]] = {}
        for gpu in sample.gpus:
            for process in gpu.facts:
                text: _Answer = (process.command, process.name, process.user, gpu.name, process.runtime)
                key = process_key(sample.host.name, gpu, process) if process.pid in pids else None
                chosen = None
                if key is not None and key in by_hand:
                    chosen = self._get(by_hand[key] or "")
                    if chosen is None:
                        texts.append(None)
                        continue
                    text = (*text, chosen.key)
                if text not in self._answers:  # each distinct text is searched once
                    new[text] = gpu, process, chosen
                texts.append(distinct.setdefault(text, text))
        if new:
            self._search(new)
        everyone = ((gpu, process) for gpu in sample.gpus for process in gpu.facts)
        for (gpu, process), known in zip(everyone, texts, strict=True):
            if known is not None:
                self._answers.move_to_end(known)
                preset = self._answers[known]
                if preset is not None:
                    matched[process_key(sample.host.name, gpu, process)] = preset
        most = max(LEAST_ANSWERS, 2 * sum(len(gpu.processes) for gpu in sample.gpus))
        while len(self._answers) > most:
            self._answers.popitem(last=False)
        return matched

    def _search(self, new: dict[_Answer, tuple[Gpu, Process, PresetFile | None]]) -> None:
        """Answer each with its chosen preset, or the first whose own rules hold, with the values of the process."""
        searched = [_searched(process) for _, process, _ in new.values()]
        # Few of the rules hold for any of them, few command lines have the longer words of one, and rules share words.
        is_there, by_word = cache("\n".join(searched).__contains__), dict[str, list[tuple[int, str, _Rule]]]()
        for at, (key, rule) in enumerate(self._rules):
            if all(any(is_there(word) for word, _ in words) for words in rule.all):
                for word in rule.rarest:
                    by_word.setdefault(word, []).append((at, key, rule))
        for line, (answer, (gpu, process, chosen)) in zip(searched, new.items(), strict=True):
            self._answers[answer] = chosen
            if chosen is not None and chosen.preset.model.__struct_config__.tag == "torch":
                continue  # the dry run of the process's own command
            near = {place[0]: place for word, places in by_word.items() if word in line for place in places}
            if not near and chosen is None:
                continue
            rules = (near[at] for at in sorted(near))
            fitting = (self._get(key) for _, key, rule in rules if rule.holds(line, process.user, gpu.name))
            command = (process.command or "")[:MOST_SEARCHED]
            offers = fitting if chosen is None else (chosen,)
            adapted = (self._adapt(one, command, chosen is not None) for one in offers if one is not None)
            first = next((one for one in adapted if one is not None), None)
            self._answers[answer] = None if first is None else first.as_run_under(process.runtime)


class MatchBasis:
    """Remembers the inputs of a host's matches from sample to sample: matching thousands of processes takes a fifth of
    a tick, and usually only figures change.
    """

    def __init__(self) -> None:
        self._last: tuple[object, ...] = ()

    def has_changed(self, sample: Sample, history: History, recorded: Mapping[ProcessKey, str | None]) -> bool:
        """Return whether matches of `sample`, which `history` has taken, may differ from those of the sample before."""
        gpus = tuple((gpu.uuid, gpu.name, len(gpu.processes)) for gpu in sample.gpus)
        last, self._last = self._last, (sample.host.name, gpus, id(history), history.changes, dict(recorded))
        # Of what a GPU lists that is not in order the history takes no note.
        return last != self._last or any(gpu.state != "ok" for gpu in sample.gpus)


def matches(match: Match, gpu: Gpu, process: Process) -> bool:
    """Return whether every rule of `match` holds; a match without rules holds for nothing."""
    return _Rule(match).holds(_searched(process), process.user, gpu.name)


def _searched(process: Process) -> str:
    return (process.command_or_name or "")[:MOST_SEARCHED].lower()


_Word = tuple[str, str | None]


class _Rule:
    """A `[match]`, its words prepared."""

    def __init__(self, match: Match) -> None:
        self.all = [[_word(word) for word in words] for words in match.all]
        self._none = [_word(word) for word in match.none]
        self._user = match.user
        self._gpu = None if match.gpu is None else match.gpu.lower()
        self._is_empty = not match.all and match.user is None and match.gpu is None
        shortest = {min((len(word) for word, _ in words), default=0): words for words in self.all}
        self.rarest = [word for word, _ in shortest[max(shortest)]] if shortest else [""]  # one of them has to be there

    def holds(self, text: str, user: str | None, gpu: str) -> bool:
        """Return whether a process with the command line `text`, in lower case, is one of these jobs."""
        if self._is_empty or not all(_is_one_in(words, text) for words in self.all):
            return False
        if self._user is not None and self._user != user:
            return False
        return (self._gpu is None or self._gpu in gpu.lower()) and not _is_one_in(self._none, text)


def _word(word: str) -> _Word:
    """`word` as it is looked for; a digit at one of its ends is the end of a number. Its pattern is compiled once a
    command line has it: of thousands of presets hardly any has its words in one.
    """
    word = word.lower()
    before, behind = "(?<![0-9])" if word[0] in _DIGITS else "", "(?![0-9])" if word[-1] in _DIGITS else ""
    return word, f"{before}{re.escape(word)}{behind}" if before or behind else None


_DIGITS = frozenset("0123456789")


def _is_one_in(words: list[_Word], text: str) -> bool:
    return any(word in text and (whole is None or re.search(whole, text)) for word, whole in words)
