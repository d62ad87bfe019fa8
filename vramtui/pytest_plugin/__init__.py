"""Memory tests without a GPU: the pytest plugin that the extra `pytest` brings."""
