"""Generation with a KV cache: prefill, then one token after another."""
