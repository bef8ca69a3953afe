"""Every setting comes from an environment variable, and the error of an illegal value names the variable."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from platform_defs.settings import HOME, PROJECT, Settings, settings

LEGAL = {
    "lake": ("s3a://bucket/lake", "s3a://bucket/lake"),
    "landing": ("/data/in/", "/data/in"),
    "connections": ("/etc/tidemark/../connections.yaml", "/etc/connections.yaml"),
    "dagster_home": ("/data/dagster", "/data/dagster"),
    "spark_master": ("local[1]", "local[1]"),
    "shared_folders": ("true", True),
    "driver_memory": ("512m", "512m"),
    "shuffle_partitions": ("7", 7),
    "spark_ui": ("true", True),
    "traceback": ("1", True),
    "jars": ("/data/jars", "/data/jars"),
    "session_file": ("/run/tidemark/session.json", "/run/tidemark/session.json"),
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
    "changelog_retention": ("30 days", "30 days"),
    "quarantine_retention": ("90 days", "90 days"),
    "ledger_retention": ("90 days", "90 days"),
    "max_step": ("1000", 1000),
    "max_files": ("3", 3),
    "stream_trigger": ("availableNow", "availableNow"),
    "stream_summary": ("1 minute", "1 minute"),
    "stream_metrics_port": ("9474", 9474),
    "stream_metrics_host": ("0.0.0.0", "0.0.0.0"),
    "first_day": ("2020-02-29", "2020-02-29"),
    "last_day": ("2020-03-01", "2020-03-01"),
    "pipeline": ("/data/rides.py:made", "/data/rides.py:made"),
    "completeness": ("0.9", 0.9),
    "freshness": ("10 minutes", "10 minutes"),
    "alert_after": ("1", 1),
    "alert_webhook": ("https://hooks.invalid/services/T/B/s3cret", "https://hooks.invalid/services/T/B/s3cret"),
    "alert_command": ("logger -t tidemark", "logger -t tidemark"),
    "alert_mail": ("a@b.invalid,c@d.invalid", "a@b.invalid, c@d.invalid"),
    "alert_mail_from": ("tidemark@b.invalid", "tidemark@b.invalid"),
    "alert_smtp": ("smtp://user:s3cret@mail.invalid:587", "smtp://user:s3cret@mail.invalid:587"),
    "alert_ui": ("https://dagster.invalid/", "https://dagster.invalid"),
    "openlineage": ("true", True),
}
ILLEGAL = [
    ("shuffle_partitions", "0"),
    ("shuffle_partitions", "many"),
    ("spark_ui", "perhaps"),
    ("shared_folders", "some"),
    ("lease", "999 ms"),
    ("lease", "soon"),
    ("payment_within", "a while"),
    ("payment_within", "1.5 hours"),
    ("join_how", "cross"),
    ("out_of_orderness", ""),
    ("idle_timeout", "-1 hour"),
    ("duplicate_horizon", "7"),
    ("future_skew", "1 month"),
    ("changelog_retention", "0 ms"),
    ("quarantine_retention", "1 month"),
    ("max_step", "0"),
    ("max_files", "0"),
    ("early_results", "every so often"),
    ("stream_trigger", "30 seconds"),
    ("stream_trigger", "processingTime=0 s"),
    ("stream_trigger", "processingTime=soon"),
    ("stream_trigger", "once"),
    ("stream_summary", "0 ms"),
    ("stream_summary", "2 days"),
    ("stream_metrics_port", "65536"),
    ("stream_metrics_host", "http://host"),
    ("first_day", "1 March 2026"),
    ("first_day", "2026-02-30"),
    ("last_day", "2026-02-30"),
    ("pipeline", "rides/pipeline"),
    ("pipeline", "a-b:c"),
    ("pipeline", "rides.py:"),
    ("completeness", "1.1"),
    ("completeness", "nan"),
    ("lake", ""),
    ("lake", "  "),
    ("lake", "/"),
    ("lake", "hdfs:/lake"),
    ("lake", "s3a://key:s3cret@bucket/lake"),
    ("lake", "/data/*"),
    ("landing", ""),
    ("connections", "connections.json"),
    ("dagster_home", "s3a://bucket/x"),
    ("jars", "/data/a,b"),
    ("jars", "https://user:s3cret@host/jars"),
    ("java_home", ""),
    ("maven_mirror", ""),
    ("maven_mirror", "user:s3cret@mirror.invalid"),
    ("maven_mirror", "http://user:s3cret@mirror.invalid:port/"),
    ("maven_mirror", "http://user:s3/cret@mirror.invalid/"),
    ("maven_mirror", "ftp://user:s3cret@mirror.invalid/"),
    ("spark_master", ""),
    ("spark_master", "local[0]"),
    ("spark_master", "spork://user:s3cret@h"),
    ("driver_memory", "3"),
    ("driver_memory", "511m"),
    ("driver_memory", "-3g"),
    ("payment_within", "99999999999999 weeks"),
    ("payment_within", "36501 days"),
    ("payment_within", "9" * 5_000 + " days"),
    ("lease", "2 days"),
    ("sales_window", "0 ms"),
    ("sales_slide", "0 ms"),
    ("sales_slide", "100 ms"),
    ("early_results", "every 9999999999999 weeks"),
    ("early_results", "every 0 rows"),
    ("first_day", "0001-01-01"),
    ("first_day", "9999-12-31"),
    ("hot_items", "99999999999999999999"),
    ("alert_after", "0"),
    ("alert_webhook", "hooks.invalid/s3cret"),
    ("alert_webhook", "ftp://hooks.invalid/s3cret"),
    ("alert_webhook", "https://hooks.invalid:port/s3cret"),
    ("alert_webhook", "https://user:s3cret@hooks.invalid/x"),
    ("alert_command", f"curl -H 'Authorization: s3cret' {'x' * 2_000}"),
    ("alert_smtp", "smtp://s3cret@mail.invalid"),
    ("alert_smtp", "http://user:s3cret@mail.invalid"),
    ("alert_smtp", "smtp://user:s3cret@mail.invalid/path"),
    ("alert_smtp", "smtp://user:s3cret@mail.invalid?"),
    ("alert_smtp", "smtp://:s3cret@mail.invalid"),
    ("alert_mail", "nobody"),
    ("alert_mail", "a@b.invalid"),
    ("alert_mail_from", "Tidemark <a@b.invalid>"),
    ("alert_ui", "https://user:s3cret@dagster.invalid"),
    ("alert_ui", "https://dagster.invalid?token=s3cret"),
    ("alert_ui", "https://dagster.invalid/?"),
    ("alert_ui", "https://dagster.invalid#"),
    ("freshness", "soon"),
    ("freshness", "0 ms"),
    ("openlineage", "perhaps"),
]


@pytest.fixture(autouse=True)
def _without_variables(monkeypatch):
    for name in [*(f"TIDEMARK_{field.upper()}" for field in Settings.model_fields), "JAVA_HOME", "DAGSTER_HOME"]:
        monkeypatch.delenv(name, raising=False)
    yield
    settings.cache_clear()


def test_every_setting_has_a_test_case():
    assert set(LEGAL) == set(Settings.model_fields)


@pytest.mark.parametrize("field", LEGAL)
def test_each_setting_comes_from_its_variable(monkeypatch, field):
    text, value = LEGAL[field]
    assert getattr(Settings(), field) != value
    monkeypatch.setenv(f"TIDEMARK_{field.upper()}", text)
    if field == "alert_mail":
        monkeypatch.setenv("TIDEMARK_ALERT_SMTP", "smtp://mail.invalid")
    assert getattr(Settings(), field) == value


@pytest.mark.parametrize("field", ["java_home", "dagster_home"])
def test_tidemarks_variables_take_precedence_over_the_standard_ones(monkeypatch, field):
    monkeypatch.setenv(field.upper(), "/theirs")
    assert getattr(Settings(), field) == "/theirs"
    monkeypatch.setenv(f"TIDEMARK_{field.upper()}", "/ours")
    assert getattr(Settings(), field) == "/ours"


@pytest.mark.parametrize(("field", "text"), ILLEGAL, ids=lambda v: v[:40] or "empty")
def test_the_error_of_an_illegal_value_names_its_variable(monkeypatch, field, text):
    variable = f"TIDEMARK_{field.upper()}"
    monkeypatch.setenv(variable, text)
    settings.cache_clear()
    with pytest.raises(ValueError, match=variable) as refused:
        settings()
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 700
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("text", ["soon", "2026-02-30", "9999-12-31"])
def test_the_error_of_an_illegal_day_says_what_is_legal(monkeypatch, text):
    monkeypatch.setenv("TIDEMARK_FIRST_DAY", text)
    message = f"TIDEMARK_FIRST_DAY is '{text}': legal: a day, such as 2026-03-01, from 1900-01-01 to 2100-01-01; each day is a partition"
    with pytest.raises(ValueError, match=f"^{message}$"):
        settings()


def test_the_landing_folder_defaults_to_one_in_the_lake():
    assert Settings(lake="/data/lake/").landing_root == "/data/lake/landing"
    assert Settings(lake="/data/lake", landing="/data/in/").landing_root == "/data/in"
    assert Settings(lake="/data/lake", landing="/data/lake/landing/shop").landing_root == "/data/lake/landing/shop"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lake": "/data/lake", "landing": "/data/lake"}, "TIDEMARK_LANDING is '/data/lake': legal: a folder outside the lake"),
        ({"lake": "/data/lake", "landing": "/data/lake/events/orders"}, "TIDEMARK_LANDING is '/data/lake/events/orders'"),
        ({"lake": "/data/in/lake", "landing": "/data/in"}, "TIDEMARK_LAKE is '/data/in/lake': legal: a folder outside TIDEMARK_LANDING"),
        ({"jars": "/data/in", "landing": "/data/in"}, "TIDEMARK_JARS is '/data/in': legal: a folder outside TIDEMARK_LANDING"),
        ({"dagster_home": "/data/lake/landing/x", "lake": "/data/lake"}, "TIDEMARK_DAGSTER_HOME is '/data/lake/landing/x'"),
        ({"lake": "s3a://b/lake", "landing": "S3A://b//lake/"}, "TIDEMARK_LANDING is 's3a://b/lake'"),
    ],
)
def test_overlapping_folders_are_refused(monkeypatch, values, message):
    for field, value in values.items():
        monkeypatch.setenv(f"TIDEMARK_{field.upper()}", value)
    settings.cache_clear()
    with pytest.raises(ValueError, match=re.escape(message)):
        settings()


def test_a_relative_folder_is_resolved_from_the_project(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    values = Settings(lake="data/lake", landing="~/in")
    assert values.lake == f"{PROJECT}/data/lake"
    assert values.landing_root == str(Path.home() / "in")


@pytest.mark.parametrize("name", ["JAVA_HOME", "DAGSTER_HOME"])
def test_an_empty_standard_variable_is_ignored(monkeypatch, name):
    monkeypatch.setenv(name, "")
    settings.cache_clear()
    assert (settings().java_home, settings().dagster_home) == (None, f"{HOME}/dagster")


def test_an_unknown_variable_is_a_warning_without_its_value(monkeypatch, caplog):
    monkeypatch.setenv("TIDEMARK_LANDINGS", "s3cret")
    monkeypatch.setenv("TIDEMARK_QQQQQQQ", "s3cret")
    settings.cache_clear()
    settings()
    assert caplog.messages == [
        "TIDEMARK_LANDINGS is not a setting and is ignored; did you mean TIDEMARK_LANDING?",
        "TIDEMARK_QQQQQQQ is not a setting and is ignored",
    ]


def test_the_password_of_a_mirror_is_not_in_the_settings_text():
    values = Settings(maven_mirror="https://user:s3cret@mirror.invalid/m2")
    assert values.maven_mirror == "https://user:s3cret@mirror.invalid/m2"
    assert "s3cret" not in f"{values!r} {values}"


def test_the_secrets_of_alerts_are_not_in_the_settings_text():
    values = Settings(alert_webhook="https://hooks.invalid/s3cret", alert_smtp="smtp://u:s3cret@mail.invalid")
    assert "s3cret" not in f"{values!r} {values}"


def test_settings_are_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        Settings().lake = "elsewhere"


def test_settings_are_read_once(monkeypatch):
    settings.cache_clear()
    before = settings()
    monkeypatch.setenv("TIDEMARK_MAX_FILES", "3")
    assert settings() is before
    settings.cache_clear()
