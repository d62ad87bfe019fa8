"""The shapes of every tensor of transformers' models as expressions over config keys, found on the meta device."""
