"""The engine: ingests files into event logs and a ledger, computes tables from them, and accounts for every row."""

from platform_defs.engine.accounting.day_accounts import DayAccount
from platform_defs.engine.accounting.one_step import LawError
from platform_defs.engine.advance.step_error import StepError
from platform_defs.engine.engine import Engine
from platform_defs.engine.ingest.ingest import IngestError
from platform_defs.engine.inputs.progress_errors import ProgressError
from platform_defs.engine.ledger.errors import LedgerError
from platform_defs.engine.operations.maintenance import MaintenanceError

__all__ = ["DayAccount", "Engine", "IngestError", "LawError", "LedgerError", "MaintenanceError", "ProgressError", "StepError"]
