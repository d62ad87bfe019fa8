# What type checkers see of the package; `__init__.py` loads it when it is used.
from vramtui.api import FitReport as FitReport
from vramtui.api import JobEstimate as JobEstimate
from vramtui.api import ObservedRun as ObservedRun
from vramtui.api import UserError as UserError
from vramtui.api import estimate as estimate
from vramtui.api import fit as fit
from vramtui.api import observe as observe
from vramtui.api import sample as sample
from vramtui.api import schema as schema
from vramtui.api import trace as trace

__version__: str
