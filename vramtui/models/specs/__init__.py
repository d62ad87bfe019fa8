"""From a preset's `[model]` table to what the model consists of: one file for each style of model."""
