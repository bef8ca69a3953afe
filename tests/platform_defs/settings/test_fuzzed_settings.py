"""Any text in any variable is a valid value, or a one-line error that names the variable. No test starts Spark."""

import os
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from operators.timing import length_ms
from platform_defs.configured_engine import make_engine
from platform_defs.definitions import build
from platform_defs.pipelines import PipelineError, configured_pipeline
from platform_defs.settings import Settings, settings
from platform_defs.shop import shop
from tests.support.example_counts import example_count

ENVIRONMENT = st.text(st.characters(exclude_characters="\0"), max_size=40)
LIKELY = [
    *(
        "",
        " ",
        "0",
        "1",
        "-1",
        "1e9",
        "nan",
        "inf",
        "true",
        "None",
        "*",
        "/",
        "~",
        "~x",
        ".",
        "..",
        "a",
        "/x",
        "file:/x",
        "file:///%00",
        "/a%41b",
        "file:///a%2541b",
        "s3a://b",
    ),
    *(
        "s3a://",
        "hdfs:/x",
        "hdfs:///x",
        "http://h",
        "http://u:s3cret@h/",
        "http://[",
        "http://h:99999/",
        "C:\\x",
        "a:b",
        "\x1b[31m",
        "\u202e",
        "\ud800",
    ),
    *(
        "0 ms",
        "1 ms",
        "1 s",
        "7 weeks",
        "9" * 5_000 + " s",
        "99999999 weeks",
        "-1 day",
        "1.5 h",
        "every step",
        "every 1 row",
        "every 3 s",
        "every 0 s",
    ),
    *(
        "every " + "9" * 30 + " rows",
        "2026-03-01",
        "20260301",
        "2026-W09-1",
        "0001-01-01",
        "9999-12-31",
        "٣ days",
        "local[4]",
        "local[*,2]",
        "yarn",
    ),
    *("spark://h:7077", "spark://u:s3cret@h", "512m", "3G", "1tb", "inner", "full", "x" * 5_000),
]
TEXTS = st.one_of(st.sampled_from(LIKELY), ENVIRONMENT)


def _is_encodable(text: str) -> bool:
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


@pytest.fixture(autouse=True)
def _fresh_settings():
    yield
    settings.cache_clear()


def _settings_or_error(environment: dict[str, str]) -> Settings | str:
    """The settings of an environment, or the error's text."""
    settings.cache_clear()
    with mock.patch.dict(os.environ, environment):
        for other in [*(f"TIDEMARK_{f.upper()}" for f in Settings.model_fields), "JAVA_HOME", "DAGSTER_HOME"]:
            if other not in environment:
                os.environ.pop(other, None)
        try:
            return settings()
        except ValueError as error:
            return str(error)


@pytest.mark.parametrize("field", Settings.model_fields)
@hypothesis_settings(max_examples=example_count(10), database=None)
@given(text=TEXTS)
def test_any_text_is_a_valid_value_or_a_one_line_error(field, text):
    _check_value_or_error(field, text)


@pytest.mark.soak
@pytest.mark.parametrize("field", Settings.model_fields)
@hypothesis_settings(max_examples=200, database=None)
@given(text=TEXTS)
def test_many_texts_are_valid_values_or_one_line_errors(field, text):
    _check_value_or_error(field, text)


def _check_value_or_error(field: str, text: str) -> None:
    if not _is_encodable(text):
        return
    variable = f"TIDEMARK_{field.upper()}"
    found = _settings_or_error({variable: text})
    if isinstance(found, str):
        assert variable in found
        assert found.isprintable()
        assert len(found) < 1_000
        assert "s3cret" not in found
    else:
        _check_usable(found)


def _check_usable(values: Settings) -> None:
    """Assert that an engine and its assets can be made from the values."""
    engine = make_engine(values, shop(values))
    assert engine.lake.root == values.lake == Settings(lake=values.lake).lake
    for duration in (values.payment_within, values.sales_window, values.idle_timeout, values.duplicate_horizon, values.future_skew):
        assert 0 <= length_ms(duration, "duration") <= 36_500 * 86_400_000
    if values.pipeline is not None:
        with pytest.raises(PipelineError, match=r"^TIDEMARK_PIPELINE is ") as raised:
            configured_pipeline(values)
        assert len(str(raised.value)) < 1_000


@pytest.mark.parametrize("pair", [("lake", "landing"), ("sales_window", "sales_slide"), ("lake", "jars"), ("landing", "dagster_home")])
@hypothesis_settings(max_examples=example_count(60), database=None)
@given(texts=st.tuples(TEXTS, TEXTS))
@example(texts=("file:/x", "/x"))
@example(texts=("/x", "/x/events"))
def test_an_error_of_two_conflicting_settings_names_one_of_them(pair, texts):
    if not all(map(_is_encodable, texts)):
        return
    found = _settings_or_error(dict(zip([f"TIDEMARK_{field.upper()}" for field in pair], texts, strict=True)))
    if isinstance(found, str):
        assert any(f"TIDEMARK_{field.upper()}" in found for field in pair)
        assert found.isprintable()
        assert "s3cret" not in found
    else:
        _check_usable(found)


def test_definitions_load_with_extreme_settings():
    largest = dict.fromkeys(("payment_within", "allowed_lateness", "out_of_orderness", "idle_timeout", "duplicate_horizon"), "36500 days")
    values = _settings_or_error(
        {f"TIDEMARK_{f.upper()}": text for f, text in {**largest, "future_skew": "36500 days", "first_day": "1900-01-01"}.items()}
    )
    assert isinstance(values, Settings)
    assert build(values).resolve_job_def("advance")
