"""What all tests share: how Hypothesis looks for examples, signals as a terminal leaves them, garbage, the fast
tier.
"""

import gc
import importlib.util
import os
import random
import signal
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from tests.warm_torch import FOLDER
from vramtui.estimators.analytic.sizes import runtime as assumed_runtime

settings.register_profile(
    "ours",
    deadline=None,  # how long an example takes is the machine's business
    suppress_health_check=[HealthCheck.too_slow],  # as above
    print_blob=True,
    # A submission is judged by the same examples each time; new ones are looked for wherever else the tests run.
    derandomize="CI" in os.environ,
    database=None if "CI" in os.environ else settings.get_profile("default").database,
)
settings.register_profile("fast", settings.get_profile("ours"), max_examples=10)
settings.load_profile("ours")

# A place of this worker's own: the jobs and emulated cards that one test announces are not for others to see.
RUNTIME = tempfile.TemporaryDirectory(prefix="run-")
os.environ["XDG_RUNTIME_DIR"] = RUNTIME.name
# And one of all workers, which are started by the process that makes it.
if FOLDER not in os.environ:
    SHARED = tempfile.TemporaryDirectory(prefix="all-")
    os.environ[FOLDER] = SHARED.name

# Figures were recorded under it; tests/estimators/analytic/test_releases.py has those of others.
assumed_runtime.ASSUMED = (2, 13)

TORCH_MISSING = "torch is not installed: pip install 'vramtui[torch]'"
LEFT_OUT = ("pty", "slow", "torch")
INSTALLED = Path(__file__).parent / "installed"  # all of it starts the program as pip installed it
SCREENS = INSTALLED.with_name("app")
ORDER = os.environ.get("TEST_ORDER", "")  # a seed; without one tests run in the order of their files
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CASES = 2  # of each test, in the fast tier
GARBAGE = 2_000  # objects after which new ones are looked through, as in the dashboard
# Some five seconds and more each, the longest first: one that began last would run alone at the end (`make test` keeps
# this order).
LONGEST = (
    "test_jobs.py", "test_printed_commands.py", "test_plugin.py", "test_values.py", "test_articles.py",
    "test_outside_values.py", "test_plan.py", "test_fuzz.py", "test_dry_run_command.py", "test_fit_command.py",
    "test_shielded_jobs.py", "test_screens.py", "test_emulated_torch.py", "test_one_answer.py", "test_editor.py",
    "test_patches_by_name.py", "test_differential.py", "test_run_command.py", "test_commands.py", "test_record.py",
    "test_probe_matrix.py", "test_training_cases.py", "test_trace_handed_over.py", "test_names.py",
    "test_traced_golden_runs.py", "test_plan_maps.py", "test_editor_files.py", "test_every_screen.py", "test_known.py",
    "test_history_screen.py", "test_dashboard.py", "test_screenshots.py", "test_crashes.py", "test_cell_diff.py",
    "test_recording.py", "test_odd_terminals.py", "test_matrix.py", "test_job_control.py", "test_error_owner.py",
    "test_traced_as_it_is.py", "test_interpreters.py", "test_scripts.py", "test_configs.py", "test_themes.py",
    "test_timeline.py", "test_planner.py", "test_shutdown.py", "test_signals.py", "test_keys.py", "test_hosts.py",
    "test_pictures.py", "test_drafts.py", "test_distributions.py", "test_kernels_of_others.py", "test_keybar.py",
)  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast",
        action="store_true",
        help=f"leave out {', '.join(LEFT_OUT)} tests, and run at most {CASES} cases of each other one",
    )


def pytest_configure(config: pytest.Config) -> None:
    reset_ignored_signals()
    if config.getoption("--fast"):
        settings.load_profile("fast")
        config.option.warn_unused_snapshots = True  # of cases that are left out, which would fail the run


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is loaded by then stays until the end: looking through it for garbage again and again takes a fifth of the
    time of tests that make screens. New objects are looked through as rarely as in the dashboard (`app/shutdown.py`).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(GARBAGE, 20, 50)


def reset_ignored_signals() -> None:
    """A script that starts the tests with `&` lets them ignore SIGINT and SIGQUIT, and every process that they start
    would inherit that: here, and so there, these signals do again what they do in a terminal.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGQUIT) == signal.SIG_IGN:
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """A command takes the signals that end it for as long as its process lives. One that runs within this process,
    `export` in its test, would take them from all tests after it: an interrupt that one of these sends was lost.
    """
    held, handlers = signal.pthread_sigmask(signal.SIG_BLOCK, ()), [signal.getsignal(number) for number in ENDING]
    try:
        return (yield)
    finally:
        for number, handler in zip(ENDING, handlers, strict=True):
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    has_torch = importlib.util.find_spec("torch") is not None
    for item in items:
        if item.path.is_relative_to(INSTALLED):
            item.add_marker(pytest.mark.pty)
        if not has_torch and item.get_closest_marker("torch"):
            item.add_marker(pytest.mark.skip(reason=TORCH_MISSING))
    if ORDER:
        _shuffle(items, ORDER)
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    if config.getoption("--fast"):
        kept = set(_fast(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def _shuffle(items: list[pytest.Item], seed: str) -> None:
    """Files in another order, and tests of one file, so that none can rely on one before it; the same for one seed."""
    chance = random.Random(seed)
    files: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    mixed = list(files.values())
    chance.shuffle(mixed)
    for group in mixed:
        chance.shuffle(group)
    items[:] = [item for group in mixed for item in group]


def pytest_report_header() -> str:
    return f"TEST_ORDER={ORDER}" if ORDER else ""


def _fast(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests of the fast tier: of each function the first and the last case; of screens, which take
    long to start, one test a file.
    """
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in LEFT_OUT):
            cases[item.nodeid.partition("[")[0]].append(item)
    screens: set[Path] = set()
    kept: list[pytest.Item] = []
    for group in cases.values():
        path = group[0].path
        if not path.is_relative_to(SCREENS):
            places = range(min(CASES, len(group)))
            kept += [group[round(place * (len(group) - 1) / (CASES - 1))] for place in places]
        elif path not in screens:
            screens.add(path)
            kept.append(group[0])
    return kept


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runtime folder of the test's own, by a path short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="vt") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.fixture
def warm_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.warm_traces import WARM  # noqa: PLC0415 - for those alone that ask for it

    monkeypatch.setattr("vramtui.dryrun.estimate.trace", WARM.trace)


@pytest.fixture
def warm_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that trace are forks of one that has loaded torch, and else what they always are."""
    from tests.warm_children import start_warm  # noqa: PLC0415 - as above

    monkeypatch.setattr(
        "vramtui.dryrun.child.subprocess", SimpleNamespace(Popen=start_warm, DEVNULL=subprocess.DEVNULL)
    )
