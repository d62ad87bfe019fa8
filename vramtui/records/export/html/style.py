"""The page's looks: light and dark as the reader's system has it, and plain on paper."""

from vramtui.core.base.colours import DARK, LIGHT

_RULES = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; padding: 1.5rem; max-width: 62rem; }
body { color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .6rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); } .over { color: var(--bad); } .good { color: var(--good); }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
td code { display: block; min-width: 14rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 600; color: var(--dim); } .n { text-align: right; white-space: nowrap; }
svg { display: block; width: 100%; } line.mark { stroke: var(--c-prediction); stroke-width: 2; }
line.mark { stroke-dasharray: 5 3; vector-effect: non-scaling-stroke; } p.mark { color: var(--c-prediction); }
.bars { display: grid; grid: auto-flow dense auto / max-content 1fr max-content; gap: .35rem .8rem; margin: .6rem 0; }
.bar { display: contents; } .label { grid-column: 1; } .total { grid-column: 3; white-space: nowrap; }
.track { grid-column: 2; height: 1.4rem; } .c-peak { fill: var(--rule); background: var(--rule); }
.time { display: grid; grid-template-columns: max-content 1fr; gap: .2rem .8rem; }
.time p { grid-column: 2; text-align: right; } .graph { height: 11rem; }
.scale, .ends { display: flex; justify-content: space-between; color: var(--dim); }
.scale { flex-direction: column; text-align: right; line-height: 1; } .ends { grid-column: 2; }
.area { fill: var(--c-used); opacity: .8; }
.keys span { white-space: nowrap; margin-right: .9em; }
.key { display: inline-block; width: .8em; height: .8em; }
@media print { body { max-width: none; padding: 0; print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
@media print { .bars, .time, tr, li { break-inside: avoid; } h2, h3 { break-after: avoid; } }
@media (max-width: 40rem) { body { padding: .8rem; } .bars { grid-template-columns: 1fr max-content; row-gap: .1rem; } }
@media (max-width: 40rem) { thead { display: none; } tr { display: block; padding: .4rem 0; } }
@media (max-width: 40rem) { tr { border-bottom: 1px solid var(--rule); } td { border: 0; padding: .1rem 0; } }
@media (max-width: 40rem) { td, .n { display: flex; justify-content: space-between; gap: 1rem; white-space: normal; } }
@media (max-width: 40rem) { td { text-align: right; } }
@media (max-width: 40rem) { td::before { content: attr(data-name); color: var(--dim); text-align: left; } }
@media (max-width: 40rem) { td code { min-width: 0; } }
@media (max-width: 40rem) { .total { grid-column: 2; } .track { grid-column: 1 / -1; margin-bottom: .4rem; } }
"""
_LIGHT = "--ink:#1c2430;--paper:#fff;--dim:#5d6878;--rule:#dde3ea;--bad:#c62828;--good:#1b7f3b;"
_DARK = "--ink:#d7deea;--paper:#0f131a;--dim:#93a0b3;--rule:#2a3342;--bad:#ff6f6f;--good:#63d78b;"


def style() -> str:
    """The style sheet."""
    fills = "".join(f".c-{name} {{ fill: var(--c-{name}); background: var(--c-{name}); }}\n" for name in LIGHT)
    light, dark = f"{_LIGHT}{_variables(LIGHT)}", f"{_DARK}{_variables(DARK)}"
    screen = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"
    return f":root {{ color-scheme: light dark; {light} }}\n{screen}\n{fills}{_RULES}"


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--c-{name}:{colour};" for name, colour in colours.items())
