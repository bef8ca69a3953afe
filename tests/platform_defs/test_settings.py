"""Settings: every field from the environment, and a wrong value told by its variable."""

import pytest
from pydantic import ValidationError

from platform_defs.settings import Settings, settings

GIVEN = {
    "lake": ("s3a://bucket/lake", "s3a://bucket/lake"),
    "landing": ("/data/in/", "/data/in/"),
    "dagster_home": ("/data/dagster", "/data/dagster"),
    "spark_master": ("local[1]", "local[1]"),
    "driver_memory": ("512m", "512m"),
    "shuffle_partitions": ("7", 7),
    "spark_ui": ("true", True),
    "traceback": ("1", True),
    "jars": ("/data/jars", "/data/jars"),
    "lease": ("5 s", "5 s"),
    "maven_mirror": ("https://mirror.invalid/maven2", "https://mirror.invalid/maven2"),
    "java_home": ("/opt/java", "/opt/java"),
    "payment_within": ("36 hours", "36 hours"),
    "join_how": ("left", "left"),
    "sales_window": ("1 hour", "1 hour"),
    "sales_slide": ("5 minutes", "5 minutes"),
    "allowed_lateness": ("0 ms", "0 ms"),
    "early_results": ("every 100 rows", "every 100 rows"),
    "hot_items": ("3", 3),
    "category_hot_items": ("1", 1),
    "leaderboard": ("4", 4),
    "out_of_orderness": ("90 s", "90 s"),
    "idle_timeout": ("2 hours", "2 hours"),
    "duplicate_horizon": ("1 day", "1 day"),
    "future_skew": ("1 hour", "1 hour"),
    "max_step": ("1000", 1000),
    "max_files": ("3", 3),
    "first_day": ("2020-02-29", "2020-02-29"),
    "completeness": ("0.9", 0.9),
}
WRONG = [
    ("shuffle_partitions", "0"),
    ("shuffle_partitions", "many"),
    ("spark_ui", "perhaps"),
    ("lease", "999 ms"),
    ("lease", "soon"),
    ("payment_within", "a while"),
    ("payment_within", "1.5 hours"),
    ("join_how", "cross"),
    ("out_of_orderness", ""),
    ("idle_timeout", "-1 hour"),
    ("duplicate_horizon", "7"),
    ("future_skew", "1 month"),
    ("max_step", "0"),
    ("max_files", "0"),
    ("early_results", "every so often"),
    ("first_day", "1 March 2026"),
    ("first_day", "2026-02-30"),
    ("completeness", "1.1"),
]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in [*(f"TIDEMARK_{field.upper()}" for field in Settings.model_fields), "JAVA_HOME", "DAGSTER_HOME"]:
        monkeypatch.delenv(name, raising=False)


def test_every_field_is_tried_here():
    assert set(GIVEN) == set(Settings.model_fields)


@pytest.mark.parametrize("field", GIVEN)
def test_a_field_comes_from_its_variable(monkeypatch, field):
    text, value = GIVEN[field]
    assert getattr(Settings(), field) != value
    monkeypatch.setenv(f"TIDEMARK_{field.upper()}", text)
    assert getattr(Settings(), field) == value


@pytest.mark.parametrize("field", ["java_home", "dagster_home"])
def test_the_worlds_own_names_are_read_after_ours(monkeypatch, field):
    monkeypatch.setenv(field.upper(), "/theirs")
    assert getattr(Settings(), field) == "/theirs"
    monkeypatch.setenv(f"TIDEMARK_{field.upper()}", "/ours")
    assert getattr(Settings(), field) == "/ours"


@pytest.mark.parametrize(("field", "text"), WRONG, ids=lambda v: v or "empty")
def test_a_wrong_value_names_its_variable(monkeypatch, field, text):
    variable = f"TIDEMARK_{field.upper()}"
    monkeypatch.setenv(variable, text)
    settings.cache_clear()
    with pytest.raises(ValueError, match=variable):
        settings()


def test_landing_lies_in_the_lake_unless_it_is_set():
    assert Settings(lake="/data/lake/").landing_root == "/data/lake/landing"
    assert Settings(lake="/data/lake", landing="/data/in/").landing_root == "/data/in"


def test_settings_do_not_change():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().lake = "elsewhere"


def test_settings_are_read_once(monkeypatch):
    settings.cache_clear()
    before = settings()
    monkeypatch.setenv("TIDEMARK_MAX_FILES", "3")
    assert settings() is before
    settings.cache_clear()
