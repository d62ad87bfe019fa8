"""What a preset may say: models, runs, parallelism; and the settings file."""
