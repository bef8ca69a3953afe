"""`tidemark publish --kafka`: its output, and the arguments that it refuses."""

import json
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from platform_defs.cli import tables
from platform_defs.cli.main import main
from platform_defs.engine.operations.publish_to_topic import Published


def _main(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str, sinks: Sequence[str] = ("board",)
) -> tuple[int, str]:
    views = SimpleNamespace(publish_to_topic=lambda _: Published("best", 7, 2, 1234))
    engine = SimpleNamespace(sinks=dict.fromkeys(sinks), assets={}, views=views)
    monkeypatch.setattr(tables, "_engine", lambda: engine)
    monkeypatch.setattr("sys.argv", ["tidemark", "publish", *arguments])
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = int(str(ended.code))
    out, err = capsys.readouterr()
    return code, out + err


def test_the_topic_and_the_numbers_of_steps_and_records_are_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out = _main(monkeypatch, capsys, "board", "--kafka")
    assert (code, out) == (0, "The topic best has board up to step 7; written now: 2 steps, 1,234 records\n")
    code, out = _main(monkeypatch, capsys, "board", "--kafka", "--json")
    assert json.loads(out) == {"asset": "board", "topic": "best", "step": 7, "steps": 2, "records": 1234}


def test_a_table_without_a_sink_and_two_targets_or_none_are_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    code, out = _main(monkeypatch, capsys, "other", "--kafka")
    assert (code, "`asset` is 'other'; legal: board" in out) == (1, True)
    code, out = _main(monkeypatch, capsys, "other", "--kafka", sinks=())
    assert (code, "name it under kafka.sinks in the file of TIDEMARK_CONNECTIONS" in " ".join(out.split())) == (1, True)
    for arguments in (["board"], ["board", "/tmp/x", "--kafka"]):
        code, out = _main(monkeypatch, capsys, *arguments)
        assert (code, "legal: a folder, or the option --kafka" in " ".join(out.split())) == (1, True)
