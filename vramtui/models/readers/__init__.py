"""Models as other programs keep them: Hugging Face's config.json, safetensors and GGUF; only headers are read."""
