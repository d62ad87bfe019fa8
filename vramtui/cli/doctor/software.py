"""The Python programs nearby that have torch: the jobs to be watched, and what `trace` needs."""

from vramtui.cli.doctor.check import Check, Finding
from vramtui.estimators.traced.process.interpreters import TAKES, Interpreter, interpreters


def torch() -> Finding:
    """Every interpreter within reach, the torch in it, and whether that can be traced."""
    with_torch = [one for one in interpreters() if one.torch is not None]
    if not with_torch:
        return Finding(
            check="torch",
            verdict="warning",
            message="no Python within reach has torch; only `trace` needs it",
            hint="Activate the job's environment, or name its Python: vramtui trace --python PATH",
        )
    too = all(one.refusal for one in with_torch)
    return Finding(
        check="torch",
        verdict="warning" if too else "ok",
        message="; ".join(map(_line, with_torch)),
        hint=f"{TAKES}; `run`, `estimate` and the dashboard work with these" if too else "",
    )


def _line(interpreter: Interpreter) -> str:
    """What works with it."""
    return f"{interpreter.line()}: {'run' if interpreter.refusal else 'run, trace'}"


CHECKS = (Check("torch", torch),)
