"""One colour for each category of memory, everywhere it is drawn: on the screen, in pictures and in pages.

Those that are next to each other in a step of training are told apart without red or green cones, too
(`tests/core/test_base.py`).
"""

DARK = {
    "weights": "#6ea8fe", "gradients": "#63d7b0", "optimizer": "#b8327e", "master-weights": "#d98ec4",
    "activations": "#ff9f5a", "kv-cache": "#f5cc4b", "inputs": "#7fd4f5", "workspaces": "#a3b1c6",
    "temporaries": "#e85d75", "cached": "#6c7f9c", "context": "#8b97a8", "other": "#767f8c", "used": "#4f9cf9",
    "driver": "#5b6577", "prediction": "#f5b83d", "free": "#3a4353",
}  # fmt: skip
LIGHT = {
    "weights": "#2563c9", "gradients": "#0b8a63", "optimizer": "#7a1f5c", "master-weights": "#b565a0",
    "activations": "#c4580a", "kv-cache": "#9a7400", "inputs": "#0e7fa8", "workspaces": "#5a6677",
    "temporaries": "#d1495f", "cached": "#6c7f9c", "context": "#6b7686", "other": "#7c8592", "used": "#1f6fd6",
    "driver": "#8d97a6", "prediction": "#a85f00", "free": "#c9d0da",
}  # fmt: skip
GROUND = {"vramtui-dark": ("#d7deea", "#0f131a"), "vramtui-light": ("#1c2430", "#fbfcfe")}
"""Text, and what it stands on, of the themes that have colours of their own for them."""
