# What type checkers see of the package; `__init__.py` loads it when it is used.
from vramtui.api import Absence as Absence
from vramtui.api import Ancestors as Ancestors
from vramtui.api import Comparison as Comparison
from vramtui.api import DryRun as DryRun
from vramtui.api import Edge as Edge
from vramtui.api import Effect as Effect
from vramtui.api import Error as Error
from vramtui.api import Estimate as Estimate
from vramtui.api import Fit as Fit
from vramtui.api import FitReport as FitReport
from vramtui.api import Gpu as Gpu
from vramtui.api import Host as Host
from vramtui.api import JobEstimate as JobEstimate
from vramtui.api import JobRank as JobRank
from vramtui.api import Ledger as Ledger
from vramtui.api import Memory as Memory
from vramtui.api import ObservedJob as ObservedJob
from vramtui.api import ObservedRun as ObservedRun
from vramtui.api import Part as Part
from vramtui.api import PhaseEnd as PhaseEnd
from vramtui.api import Problem as Problem
from vramtui.api import Process as Process
from vramtui.api import Sample as Sample
from vramtui.api import SampleStream as SampleStream
from vramtui.api import SourceFailed as SourceFailed
from vramtui.api import UserError as UserError
from vramtui.api import XidError as XidError
from vramtui.api import dry_run as dry_run
from vramtui.api import estimate as estimate
from vramtui.api import fit as fit
from vramtui.api import observe as observe
from vramtui.api import sample as sample
from vramtui.api import schema as schema
from vramtui.api import watch as watch

__version__: str
