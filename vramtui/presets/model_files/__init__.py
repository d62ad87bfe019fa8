"""Models as other programs keep them: Hugging Face's config.json, safetensors and GGUF; only headers are read."""

from vramtui.presets.model_files.filling import filled
from vramtui.presets.model_files.presets import is_model_file, preset_of

__all__ = ["filled", "is_model_file", "preset_of"]
