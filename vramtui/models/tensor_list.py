"""The tensors of a model as they are found, and what its layers keep of a sequence."""

import msgspec

from vramtui.core.schema.models import LayerCache, Place, TensorGroup

Shape = tuple[int, ...]


class TensorList:
    """Collects tensors, those alike in one group, in the order in which they were first found."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Shape, Place], int] = {}
        self.place: Place = "outside"
        self.prefix = ""

    def add(self, name: str, *shape: int, count: int = 1) -> None:
        if count <= 0 or 0 in shape:
            return
        key = (self.prefix + name, shape, self.place)
        self._counts[key] = self._counts.get(key, 0) + count

    def linear(self, name: str, rows: int, columns: int, *, bias: bool = False, count: int = 1) -> None:
        """A linear layer's weight, and its bias where it has one."""
        self.add(name, rows, columns, count=count)
        if bias:
            self.add(name, rows, count=count)

    def norm(self, name: str, width: int, *, bias: bool = False, count: int = 1) -> None:
        """A norm's weight, and its bias where it has one."""
        self.add(name, width, count=count * (2 if bias else 1))

    def conv(self, name: str, rows: int, *inner: int, bias: bool = False, count: int = 1) -> None:
        """A convolution's weight, and its bias where it has one."""
        self.add(f"conv_{name}", rows, *inner, count=count)
        if bias:
            self.add(f"conv_{name}", rows, count=count)

    def groups(self) -> tuple[TensorGroup, ...]:
        return tuple(
            TensorGroup(name=name, shape=shape, count=count, place=place)
            for (name, shape, place), count in self._counts.items()
        )


def numbers_in(groups: tuple[TensorGroup, ...]) -> int:
    return sum(group.numel * group.count for group in groups)


class CacheList:
    """Collects what each layer keeps, layers alike in one group."""

    def __init__(self) -> None:
        self._counts: dict[LayerCache, int] = {}

    def add(
        self, *, per_token: int = 0, window: int | None = None, state: int = 0, state_fp32: int = 0, layers: int = 1
    ) -> None:
        """`layers`: numbers for a token, of the last `window` tokens or of all, and numbers for a whole sequence."""
        if layers <= 0 or not (per_token or state or state_fp32):
            return
        key = LayerCache(layers=1, per_token=per_token, window=window, state=state, state_fp32=state_fp32)
        self._counts[key] = self._counts.get(key, 0) + layers

    def groups(self) -> tuple[LayerCache, ...]:
        return tuple(msgspec.structs.replace(kind, layers=count) for kind, count in self._counts.items())
