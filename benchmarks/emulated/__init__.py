"""The same scripts on the present GPU and on an emulated card."""
