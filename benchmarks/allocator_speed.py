"""How many events a second the simulated allocator takes, over the traces that it is held against.

python benchmarks/allocator_speed.py [--rounds 5]
"""

import argparse
import gzip
import json
import time
from pathlib import Path
from typing import Any

from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.replay import Event, replay

TRACES = sorted((Path(__file__).parents[1] / "tests" / "golden" / "allocator").glob("*.json.gz"))


def events_per_second(document: dict[str, Any], rounds: int, *, rows: bool) -> float:
    """The best of some rounds.

    Args:
        document: a golden file's.
        rounds: how often it is replayed.
        rows: also keep every counter after every event.
    """
    settings = document["settings"]
    config = AllocatorConfig.parse(settings["env"].get("PYTORCH_CUDA_ALLOC_CONF", ""))
    events = [Event(**event) for event in document["events"]]
    best = 0.0
    for _ in range(rounds):
        begun = time.perf_counter()
        replay(events, CachingAllocator(settings["total_memory"], config), keep_rows=rows)
        best = max(best, len(events) / (time.perf_counter() - begun))
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{'':24}{'events':>8}{'events/s':>12}{'with every counter':>20}")
    for path in TRACES:
        document = json.loads(gzip.decompress(path.read_bytes()))
        plain, full = (events_per_second(document, rounds, rows=rows) for rows in (False, True))
        print(f"{path.name.removesuffix('.json.gz'):24}{len(document['events']):8,}{plain:12,.0f}{full:20,.0f}")


if __name__ == "__main__":
    main()
