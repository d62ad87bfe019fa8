"""A blueprint: the tensors of a part of a model, a line each, with shapes as expressions over its config's keys.

like siglip_vision_model            all lines of another one, with the names of this one where they differ
width = h * spatial_merge_size**2   a name for what follows
positions: grid + 1, h              one tensor; a norm's, a linear layer's or a convolution's weight alike
up: i, h; bias                      and a bias of its first size; `bias=KEY` where a key says so
gate: h; x 2; if KEY                so many of it, and only where a key or an expression says so
each n:                             what follows is there in each of n layers; `once:` ends it
along depths:                       what follows is there for each item of a list, `s` being its place, up to `once:`
in vision:                          what follows is named by the keys of that part; `in root:` by the whole config's
part vision; if KEY                 all of that part, by the blueprint of its own type
kept: 2 * h; x n                    no tensor, but what that many layers keep of each token

They stand in the text files of this folder, `# ...` being a comment:

== pixtral, pixtral_large           begins the blueprint of these types of a model or of a part of one
use LAYERS                          the lines of a piece, which `== LAYERS` begins; its name is in capital letters
"""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import groupby
from pathlib import Path

import msgspec

from vramtui.models.blueprints.scope import Scope, whole_number
from vramtui.models.families.family import Family
from vramtui.models.families.keys import BARE, CLASSES, Keys, head_of
from vramtui.models.families.tensor_list import CacheList, TensorList
from vramtui.models.readers.bounded import Damaged

# Items of a list that a blueprint goes along: stages of a net, or layers of one that lists its convolutions.
MOST_STAGES = 256


class TensorLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line: a tensor's name, its sizes, its bias, how many, on what condition, in each of how many layers, in which
    part, and along which list.
    """

    name: str
    sizes: str
    bias: str = ""
    count: str = ""
    condition: str = ""
    each: str = ""
    part: str = ""
    along: str = ""


NamedLine = tuple[str, str, str, str]  # a name, what it stands for, in which part, and along which list
Blueprint = tuple[TensorLine | NamedLine, ...]
PART = "part"


def read_blueprints(*names: str) -> dict[str, str]:
    """The blueprints in the text files of these names by their types; a file may use the pieces of those before it."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for name in names:
        for line in Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines():
            if line.startswith("== "):
                lines = []
                found |= dict.fromkeys(line[3:].split(", "), lines)
            elif line.startswith("use "):
                lines += found[line[4:]]
            elif line and not line.startswith("#"):
                lines.append(line)
    return {kind: "\n".join(lines) for kind, lines in found.items() if not kind.isupper()}


def parse(text: str, others: Mapping[str, str]) -> Blueprint:
    """The lines of a blueprint; those of the one it is `like` come after the names that it defines itself."""
    lines: list[TensorLine | NamedLine] = []
    names: set[str] = set()
    each = part = along = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith("like "):
            other = parse(others[line[5:]], others)
            lines += [one for one in other if not (isinstance(one, tuple) and one[0] in names)]
        elif line.startswith("each "):
            each = line[5:-1]
        elif line.startswith("along "):
            along, each = line[6:-1], ""
        elif line == "once:":
            each = along = ""
        elif line.startswith("in "):
            part = line[3:-1]
        elif line.startswith("part "):
            lines.append((PART, line[5:], "", ""))
        else:
            one = _line(line, each, part, along)
            if isinstance(one, tuple):
                names.add(one[0])
            lines.append(one)
    return tuple(lines)


def _line(line: str, each: str, part: str, along: str) -> TensorLine | NamedLine:
    head, *rest = (piece.strip() for piece in line.split(";"))
    name, colon, sizes = head.partition(": ")
    if not colon:
        name, _, value = head.partition(" = ")
        return name, value, part, along
    said: dict[str, str] = {}
    for piece in rest:
        if piece.startswith("x "):
            said["count"] = piece[2:]
        elif piece.startswith("if "):
            said["condition"] = piece[3:]
        else:
            said["bias"] = piece.partition("=")[2] or "True"
    return TensorLine(name=name, sizes=f"({sizes},)", each=each, part=part, along=along, **said)


def add_tensors(
    tensors: TensorList,
    blueprint: Blueprint,
    scope: Scope,
    caches: CacheList | None = None,
    inner: Callable[[str], Blueprint] | None = None,
) -> None:
    """Every tensor of it; of a tower all in its place, else those of layers and those beside them apart.

    Args:
        tensors: get the tensors.
        blueprint: the lines.
        scope: the config.
        caches: get what its layers keep.
        inner: the blueprint of a type, for the parts that have one of their own.

    Raises:
        Damaged: a key that is needed is missing, or a size is no whole number.
    """
    tower = tensors.place == "tower"
    for (where, along), lines in groupby(blueprint, _where):
        own = scope if where in {"", "root"} else scope.part(where)
        found = own.evaluate(along) if along else 1
        times = len(found) if isinstance(found, (list, dict)) else whole_number(found, f"the stages of {along}")
        if times > MOST_STAGES:
            raise Damaged(f"has more than {MOST_STAGES} stages of {along}")
        written = tuple(lines)
        for stage in range(times):
            if along:
                own.values["s"] = stage
            for line in written:
                if not isinstance(line, tuple) or line[0] != PART:
                    _add_line(tensors, line, own, caches, tower=tower)
                elif inner is not None:
                    _add_part(tensors, line[1], own, inner)


def _add_part(tensors: TensorList, said: str, scope: Scope, inner: Callable[[str], Blueprint]) -> None:
    name, _, condition = said.partition("; if ")
    if not condition or scope.evaluate(condition):
        part = scope.part(name)
        tensors.prefix = "text." if name == "text" else ""  # whose tables are not those of the stream
        add_tensors(tensors, inner(str(part.values.get("model_type"))), part, inner=inner)
        tensors.prefix = ""


def _where(line: TensorLine | NamedLine) -> tuple[str, str]:
    return (line[2], line[3]) if isinstance(line, tuple) else (line.part, line.along)


def _add_line(
    tensors: TensorList, line: TensorLine | NamedLine, own: Scope, caches: CacheList | None, *, tower: bool
) -> None:
    if isinstance(line, tuple):
        own.values[line[0]] = own.evaluate(line[1])
        return
    if line.condition and not own.evaluate(line.condition):
        return
    what = f"the sizes of {line.name}"
    count = whole_number(own.evaluate(line.count), what) if line.count else 1
    if line.each:
        count *= whole_number(own.evaluate(line.each), what)
    sizes = [whole_number(size, what) for size in own.evaluate(line.sizes)]
    if line.name == "kept":
        if caches is not None:
            caches.add(per_token=sizes[0], layers=count)
        return
    if not tower:
        tensors.place = "layers" if line.each else "outside"
    tensors.add(line.name, *sizes, count=count)
    if line.bias and own.evaluate(line.bias):
        tensors.add(line.name, sizes[0], count=count)


# Language models that are not built like Llama or BERT.
WHOLE = {**read_blueprints("encoders"), **read_blueprints("whole")}


# Of these the heads for classes, and of none, are written down as well as the one over words.
HEADED = frozenset(kind for kind, text in WHOLE.items() if "if classes" in text)


@cache
def _blueprint(kind: str) -> Blueprint:
    return parse(WHOLE[kind], WHOLE)


def _family(kind: str) -> Family:
    def build(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
        head = head_of(keys)
        heads = {"classes": head == CLASSES, "bare": head == BARE, "headed": not head}
        add_tensors(tensors, _blueprint(kind), Scope({**keys.values, **heads}, inside=keys.inside), caches)

    return Family(whole=build, tied=True, norm=2, gated=False, bias=True, mlp_bias=True)


WHOLE_FAMILIES: dict[str, Family] = {kind: _family(kind) for kind in WHOLE}
