"""Models by the names people know them by: where Hugging Face, LM Studio and Ollama keep them. Only files are read."""
