"""The dry run on fake tensors: PyTorch code runs without a GPU, without values, with a simulated allocator."""

from pathlib import Path

from vramtui.core.base import toml

LISTS = toml.loads(Path(__file__).with_name("lists.toml").read_text(encoding="utf-8"))
