"""The trigger of a stream, by Spark's names."""

import pytest

from platform_defs.settings.stream_trigger import StreamTrigger, TriggerError


@pytest.mark.parametrize(
    ("text", "every"),
    [("availableNow", None), ("processingTime=30 seconds", "30 seconds"), (" processingTime= 1 day ", "1 day")],
)
def test_a_trigger_has_an_interval_or_ends_with_the_present_files(text: str, every: str | None) -> None:
    assert StreamTrigger.read(text) == StreamTrigger(every)


@pytest.mark.parametrize(
    "text", ["", "once", "30 seconds", "processingTime", "processingTime=", "processingTime=0 s", "processingTime=2 days"]
)
def test_another_text_is_refused_with_the_legal_values(text: str) -> None:
    with pytest.raises(TriggerError, match=r"^`trigger` is '.*'; legal: 'availableNow', or 'processingTime=' and an interval"):
        StreamTrigger.read(text, "trigger")
