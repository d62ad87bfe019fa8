"""The tensors of towers, projectors and encoders as data: a name and a shape a line, over the keys of a config."""
