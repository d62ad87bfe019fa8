"""Public training scripts through `vramtui dry-run`: the list of them, the data made up for them, and the runner."""
