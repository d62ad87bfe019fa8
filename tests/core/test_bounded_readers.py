import ast
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "vramtui"
PARSERS = {"decode", "Decoder", "loads", "load", "parse", "unpack"}
SAMPLE_READERS = {"decode_sample", "following"}
LIBRARIES = {
    "json", "msgspec", "tomllib", "tomlkit", "pickle", "yaml", "struct", "sqlite3", "csv", "ElementTree", "toml",
}  # fmt: skip
# Who reads a document of somebody else's, and what bounds what is read of it.
READERS = {
    "vramtui/records/recording": "RECORDING bounds a line, `bounded` its sample",
    "vramtui/records/run_history.py": "HISTORY",
    "vramtui/core/observation/readings.py": "`sample_in` bounds what it decodes",
    "vramtui/core/observation/probe_messages.py": "each field has its bounds, LONGEST_MESSAGE the whole",
    "vramtui/core/base/toml.py": "the text is bounded by who calls it",
    "vramtui/presets": "PRESET and TRAINING",
    "vramtui/models": "CONFIG, INDEX, SAFETENSORS, GGUF; what comes with the program",
    "vramtui/agent/containers.py": "MOST_KEPT of a file, MOST_CONTAINERS names",
    "vramtui/sources/prometheus.py": "LARGEST, MOST_OBJECTS",
    **dict.fromkeys(
        (
            "vramtui/app/help/dialog.py",
            "vramtui/app/themes.py",
            "vramtui/app/watch/windows.py",
            "vramtui/core/estimate/explanation.py",
            "vramtui/api/schemas.py",
            "vramtui/sources/demo.py",
            "vramtui/core/observation/alerts.py",
            "vramtui/core/observation/oom",
            "vramtui/estimators/analytic",
        ),
        "what comes with the program",
    ),
    "vramtui/monitor": "this program's own children",
    "vramtui/cli": "this program's own children, and files of the user's by the readers above",
    "vramtui/dryrun": "DRIVER_REPORT, READ_PLACES, CARD_IN_USE; this program's own children",
    "vramtui/pytest_plugin": "this program's own children",
}
# Who takes lines of a feed, a recording or another host, and makes samples of them by nothing but RecordingDecoder.
SAMPLES = {"vramtui/core/observation/readings.py", "vramtui/records/recording/samples.py"}


@cache
def calls() -> tuple[tuple[str, ast.Call], ...]:
    return tuple(
        (str(path.relative_to(PACKAGE.parent)), node)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and called(node) in {*PARSERS, *SAMPLE_READERS, "convert"}
    )


def called(call: ast.Call) -> str:
    function = call.func
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def test_every_reader_is_known_with_its_bound() -> None:
    parsing = {
        name
        for name, call in calls()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in PARSERS
        and ast.unparse(call.func.value).rpartition(".")[2] in LIBRARIES
    }
    unknown = {name for name in parsing if not any(Path(name).is_relative_to(reader) for reader in READERS)}
    assert unknown == set(), "give its bounds a line in READERS"
    assert {reader for reader in READERS if not any(Path(name).is_relative_to(reader) for name in parsing)} == set()


def test_samples_have_one_reader_and_those_from_series_are_bounded_too() -> None:
    decoding = {name for name, call in calls() if called(call) in SAMPLE_READERS}
    assert decoding <= SAMPLES
    typed = {
        name
        for name, call in calls()
        for word in (*call.args, *(keyword.value for keyword in call.keywords))
        if called(call) in {"decode", "Decoder", "convert"}
        and ast.unparse(word) in {"Sample", "Gpu", "Process", "tuple[Sample, ...]", "list[Sample]"}
    }
    assert typed <= SAMPLES
    source = (PACKAGE / "records/recording/samples.py").read_text(encoding="utf-8")
    (reader,) = (node for node in ast.parse(source).body if getattr(node, "name", "") == "sample_in")
    results = [node.value for node in ast.walk(reader) if isinstance(node, ast.Return)]
    assert [isinstance(result, ast.Call) and ast.unparse(result.func) for result in results] == ["bounded"] * 2
    # Prometheus' come field by field. NVML's and nvidia-smi's figures are bounded where each is read.
    source = (PACKAGE / "sources/prometheus.py").read_text(encoding="utf-8")
    made = [call for call in ast.walk(ast.parse(source)) if isinstance(call, ast.Call)]
    bounded = [call.args[0] for call in made if ast.unparse(call.func) == "bounded"]
    assert all(call in bounded for call in made if ast.unparse(call.func) == "Sample")
