"""Servers: vLLM and llama.cpp."""
