"""Runs one experiment on a real card: `python -m …native MODULE FUNCTION ROWS FACTS`.

FACTS gets the card and torch as JSON; the card is null where PyTorch sees none, and then nothing is run.
"""

import importlib
import json
import sys
from pathlib import Path

import torch


def main() -> None:
    """Run an experiment's function and print its measurements as JSON."""
    module, function, rows, facts = sys.argv[1:5]
    has_cuda = torch.cuda.is_available()
    facts_of_run: dict[str, object] = {"torch": str(torch.__version__), "card": None}
    if has_cuda:
        properties = torch.cuda.get_device_properties(0)
        facts_of_run["card"] = {
            "name": properties.name,
            "capability": [properties.major, properties.minor],
            "total_memory": properties.total_memory,
        }
    Path(facts).write_text(json.dumps(facts_of_run), encoding="utf-8")
    if has_cuda:
        sys.argv = [sys.argv[0], rows]
        getattr(importlib.import_module(f"{__package__}.{module}"), function)()


if __name__ == "__main__":
    main()
