import re
from pathlib import Path

from vramtui.presets import bundled_folder


def add_preset(config: Path, name: str = "ours", batch: int = 1) -> Path:
    text = (bundled_folder() / "llama" / "llama-3.1-8b-lora.toml").read_text("utf-8")
    text = re.sub(r"(?m)^all = .*\nnone = .*$", 'all = [["train_llama"]]', text)
    text = re.sub(r"(?m)^batch_size = .*$", f"batch_size = {batch}", text)
    path = config / "presets" / f"{name}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return path
