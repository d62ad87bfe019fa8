"""A text that went through a text field, which makes all line ends the same, with the line ends it had."""


def with_ends_of(before: str, after: str) -> str:
    """`after`, where each line from the beginning and from the end that `before` has too ends as it does there; the
    lines between end as most of `before`'s do.
    """
    if "\r" not in before and before.isascii():
        return after.replace("\r\n", "\n")
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    head = _same(old, new)
    tail = min(_same(old[::-1], new[::-1]), len(old) - head, len(new) - head)
    usual = "\r\n" if before.count("\r\n") * 2 > before.count("\n") else "\n"
    middle = [line if (bare := _bare(line)) == line else bare + usual for line in new[head : len(new) - tail]]
    return "".join((*old[:head], *middle, *old[len(old) - tail :]))


def _same(old: list[str], new: list[str]) -> int:
    """How many lines at the beginning are the same but for their ends; an end or none is a difference."""
    count = 0
    for one, other in zip(old, new, strict=False):
        if _bare(one) != _bare(other) or (one == _bare(one)) != (other == _bare(other)):
            break
        count += 1
    return count


def _bare(line: str) -> str:
    return line[: len(line) - len(_end(line))]


def _end(line: str) -> str:
    if line.endswith("\r\n"):
        return "\r\n"
    return line[-1:] if line[-1:] and not line[-1:].splitlines()[0] else ""
