"""A training job over several ranks: data, tensor, pipeline, sequence and expert parallelism."""
