"""Records the assets that fail while several are processed, so that only the assets that read them are skipped."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from assets.contracts import DerivedAsset
from operators.errors import TidemarkError
from platform_defs.engine.inputs.progress import readers_of
from platform_defs.engine.lake.errors import spark_condition


class AdvanceError(TidemarkError, RuntimeError):
    """Some assets could not be advanced; assets that do not read them were advanced."""

    @classmethod
    def of(cls, failed: Mapping[str, str]) -> "AdvanceError":
        """The failed assets, and why each failed."""
        each = "\n".join(
            reason if re.match(rf"{asset}(: | (?=[a-z]))", reason) else f"{asset}: {reason}" for asset, reason in failed.items()
        )
        continuation = "assets that do not read these were advanced"
        return cls(f"{', '.join(failed)} could not be advanced; {continuation}. Committed steps remain.\n{each}")


def without_rows(error: PySparkException | Py4JJavaError) -> str:
    """An error of Spark by class and condition, without its text, which may quote rows."""
    explanation = "its text may quote rows, so it is not shown. TIDEMARK_TRACEBACK=1 shows it, with the traceback"
    return f"Spark failed with {spark_condition(error)}; {explanation}"


class StatusError(TidemarkError, RuntimeError):
    """The conservation law does not hold for a table, or the table cannot be accounted for."""

    @classmethod
    def check(cls, laws: Mapping[str, Mapping[str, Any]]) -> None:
        """Raise if the law does not hold for a table, or a table cannot be accounted for.

        Args:
            laws: by table, the part `law` of the report.
        """
        not_accounted = [name for name, law in laws.items() if "refused" in law]
        violated = [name for name, law in laws.items() if law["holds"] is False and name not in not_accounted]
        problems = [f"the conservation law does not hold for {', '.join(violated)}"] if violated else []
        problems += [f"{', '.join(not_accounted)} cannot be accounted for"] if not_accounted else []
        days = [laws[name]["days_to_rebuild"] for name in violated if "days_to_rebuild" in laws[name]]
        first, last = min((d["first"] for d in days), default=""), max((d["last"] for d in days), default="")
        way_out = f". `tidemark backfill --from {first} --to {last} --rebuild` repairs the tables" if days else ""
        if problems:
            report = "The report above gives the rows or the reason"
            raise cls(f"{'; '.join(problems)}. {report}{way_out}; after a repair, run `tidemark status --recount`")


@dataclass
class Failures:
    """The failed assets, and why each failed.

    Args:
        assets: all derived assets, by name, each after those that it reads.
        describe: describes an error of Spark without its text, which may quote rows.
        reasons: why each failed asset failed, by its name.
    """

    assets: Mapping[str, DerivedAsset]
    describe: Callable[[PySparkException | Py4JJavaError], str]
    reasons: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def recording(self, name: str) -> Iterator[None]:
        """Record an error of an asset instead of raising it."""
        try:
            yield
        except (PySparkException, Py4JJavaError) as error:
            self.reasons[name] = self.describe(error)
        except (TidemarkError, DeltaError, OSError) as error:
            self.reasons[name] = str(error)

    def is_blocked(self, name: str) -> bool:
        """Whether an asset that has not failed itself reads a failed one, directly or indirectly."""
        return name in readers_of(self.assets, self.reasons)

    def check(self) -> None:
        """Raise `AdvanceError` if an asset failed."""
        if self.reasons:
            raise AdvanceError.of(self.reasons)
