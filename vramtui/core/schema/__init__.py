"""The schema of presets (models, runs, parallelism) and of the settings file."""
