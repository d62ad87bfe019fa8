"""Public training scripts through `vramtui trace`: the list of them, the data made up for them, and the runner."""
