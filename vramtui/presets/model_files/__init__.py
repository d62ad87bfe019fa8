"""Models as other programs keep them: Hugging Face's config.json, safetensors and GGUF; only headers are read."""

from vramtui.presets.model_files.as_preset import is_model_file, preset_of
from vramtui.presets.model_files.merge import filled

__all__ = ["filled", "is_model_file", "preset_of"]
