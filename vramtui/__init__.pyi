# What type checkers see of the package; `__init__.py` loads it when it is used.
from vramtui.api import DryRun as DryRun
from vramtui.api import Error as Error
from vramtui.api import FitReport as FitReport
from vramtui.api import Gpu as Gpu
from vramtui.api import Host as Host
from vramtui.api import JobEstimate as JobEstimate
from vramtui.api import Memory as Memory
from vramtui.api import ObservedRun as ObservedRun
from vramtui.api import Problem as Problem
from vramtui.api import Process as Process
from vramtui.api import Sample as Sample
from vramtui.api import SampleStream as SampleStream
from vramtui.api import SourceFailed as SourceFailed
from vramtui.api import UserError as UserError
from vramtui.api import dry_run as dry_run
from vramtui.api import estimate as estimate
from vramtui.api import fit as fit
from vramtui.api import observe as observe
from vramtui.api import sample as sample
from vramtui.api import schema as schema
from vramtui.api import trace as trace
from vramtui.api import watch as watch

__version__: str
