"""The engine: event logs and a ledger in, tables out, every row accounted for."""

from platform_defs.engine.books import DayAccount
from platform_defs.engine.engine import Engine
from platform_defs.engine.ingest import IngestError
from platform_defs.engine.ledger_error import LedgerError
from platform_defs.engine.maintenance import MaintenanceError
from platform_defs.engine.progress import ProgressError
from platform_defs.engine.step_error import StepError
from platform_defs.engine.step_law import LawError

__all__ = ["DayAccount", "Engine", "IngestError", "LawError", "LedgerError", "MaintenanceError", "ProgressError", "StepError"]
