"""Where a trace's bytes are counted: storages, categories, phases, the peak."""
