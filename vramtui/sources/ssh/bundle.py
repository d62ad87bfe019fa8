"""The agent as one program, for `python3 -c` to read from standard input."""

from functools import cache
from importlib.resources import files

MODULES = ("nvml", "ranks", "containers", "ancestors", "processes", "stream")  # each after those that it imports
_PROGRAM = """\
import sys, types
def vramtui_agent(sources, interval):
    package = sys.modules["vramtui_agent"] = types.ModuleType("vramtui_agent")
    package.__path__ = []
    for name, source in sources:
        module = types.ModuleType("vramtui_agent." + name)
        module.__package__ = "vramtui_agent"
        sys.modules[module.__name__] = module
        exec(compile(source, "<vramtui agent: " + name + ">", "exec"), module.__dict__)
    return sys.modules["vramtui_agent.stream"].main(interval)
"""


@cache
def agent_program(interval: float) -> bytes:
    """Python that runs the agent with a sample each `interval` seconds, and ends the interpreter with its exit code."""
    folder = files("vramtui.agent")
    sources = [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return f"{_PROGRAM}sys.exit(vramtui_agent({sources!r}, {interval!r}))\n".encode()
