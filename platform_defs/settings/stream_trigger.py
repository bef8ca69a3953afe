"""The trigger of a stream, by the names of Spark's `DataStreamWriter.trigger`."""

from dataclasses import dataclass

from operators.errors import OperatorError, TidemarkError
from operators.timing import DAY_MS, length_ms
from platform_defs.safe_text import shortened

AVAILABLE_NOW = "availableNow"
PROCESSING_TIME = "processingTime="
LEGAL = (
    "legal: 'availableNow', or 'processingTime=' and an interval of more than zero and at most a day, such as 'processingTime=30 seconds'"
)


class TriggerError(TidemarkError, ValueError):
    """A text is not a trigger."""

    @classmethod
    def of(cls, name: str, text: str) -> "TriggerError":
        """The parameter, the text, and what is legal."""
        return cls(f"`{name}` is {shortened(text)!r}; {LEGAL}")


@dataclass(frozen=True)
class StreamTrigger:
    """When a stream ingests, and when it ends.

    Args:
        every: the interval at which the stream looks for new files and records, until it is cancelled; None to ingest the present ones and
            end.
    """

    every: str | None

    @classmethod
    def read(cls, text: str, name: str = "value") -> "StreamTrigger":
        """The trigger that a text names.

        Args:
            text: `availableNow`, or `processingTime=` and an interval.
            name: the name of the parameter, for the error.

        Raises:
            TriggerError: the text is not a trigger.
        """
        if text.strip() == AVAILABLE_NOW:
            return cls(None)
        every = text.strip().removeprefix(PROCESSING_TIME).strip()
        try:
            if not text.strip().startswith(PROCESSING_TIME) or not 0 < length_ms(every, name) <= DAY_MS:
                raise TriggerError.of(name, text)
        except OperatorError as error:
            raise TriggerError.of(name, text) from error
        return cls(every)
