"""Publishing: one process at a time writes to a folder, and a folder contains the steps of one table."""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from assets.contracts import DerivedAsset
from operators import TopN
from platform_defs.engine import Engine, ProgressError, faults
from platform_defs.engine.lake.errors import LakeBusy, LakeError
from platform_defs.engine.lake.tables import Lake
from platform_defs.engine.operations.publish import PublishError, _target, _writing_to
from tests.conftest import MakeEngine
from tests.support.small_sources import Event, replay, source


def _engine(make_engine: MakeEngine) -> Engine:
    assets = [DerivedAsset(name=name, inputs=("l",), operator=TopN(order_by="v DESC", rank_end=2)) for name in ("top", "other")]
    return make_engine([source("l")], assets)


def _lines(folder: Path) -> Counter[tuple[str, str]]:
    """The lines of each step, and how often the folder contains each."""
    files = sorted(folder.glob("step=*/part-*.json"))
    return Counter((path.parent.name, line) for path in files for line in path.read_text().splitlines())


def test_a_folder_has_one_publisher_and_contains_the_steps_of_one_table(make_engine: MakeEngine, tmp_path: Path) -> None:
    engine, second = _engine(make_engine), _engine(make_engine)
    folder = tmp_path / "out" / "published"
    for v in (1, 2):
        replay(engine, [{"l": [Event("a", v, v)]}])
        engine.advance("top")

    def publish_again(point: str) -> None:
        """A second publisher runs during the first, with another spelling of the folder."""
        if point == "publish.before_write":
            faults.install(None)
            with pytest.raises(LakeError, match="publish has a writer already: process"):
                second.views.publish("top", f"file://{folder}/")

    faults.install(publish_again)
    assert engine.views.publish("top", str(folder)) == 2
    once = _lines(folder)
    assert set(once.values()) == {1}
    assert {step for step, _ in once} == {"step=1", "step=2"}
    assert (second.views.publish("top", str(folder)), _lines(folder)) == (2, once)

    engine.advance("other")
    with pytest.raises(ProgressError, match=r"the changelog of other has the id .*publish it into a new folder"):
        engine.views.publish("other", str(folder))
    (folder / "_table").unlink()  # an earlier version wrote the folder; it gets the id, but no step
    assert (engine.views.publish("top", str(folder)), _lines(folder)) == (2, once)

    for table in ("top", "changelog/top"):
        shutil.rmtree(engine.lake.path(table))
    restarted = _engine(make_engine)
    replay(restarted, [{"l": [Event("a", 9, 9)]}])
    for v in (10, 11, 12):
        replay(restarted, [{"l": [Event("a", v, v)]}])
        restarted.advance("top")
    assert restarted.pending.progress("top").step > 2
    with pytest.raises(ProgressError, match=r"the changelog of top has the id .*: it was created again, or is another table"):
        restarted.views.publish("top", str(folder))
    assert _lines(folder) == once
    assert (folder / "_published").read_text() == "2"
    assert restarted.views.publish("top", str(tmp_path / "new")) == restarted.pending.progress("top").step
    assert all(json.loads(line)["key"] for _, line in _lines(tmp_path / "new"))


def test_an_empty_mark_of_a_killed_publish_does_not_start_again_from_the_first_step(make_engine: MakeEngine, tmp_path: Path) -> None:
    """A kill while the mark is written leaves it empty. Steps that retention has merged since would replace those in the folder."""
    engine, folder = _engine(make_engine), tmp_path / "published"
    for v in (1, 2):
        replay(engine, [{"l": [Event("a", v, v)]}])
        engine.advance("top")
    assert engine.views.publish("top", str(folder)) == 2
    (folder / "_published").write_text("")
    shutil.rmtree(folder / "step=1")
    assert engine.views.publish("top", str(folder)) == 2
    assert {step for step, _ in _lines(folder)} == {"step=2"}


@pytest.mark.parametrize("below", ["", "/ledger", "/changelog/top"])
def test_a_folder_of_the_lake_is_refused(make_engine: MakeEngine, below: str) -> None:
    engine = _engine(make_engine)
    with pytest.raises(ProgressError, match=re.escape("legal: a folder outside the lake")):
        engine.views.publish("top", f"{engine.lake.root}{below}")
    with pytest.raises(ProgressError, match="`folder` is 's3a:x'; legal: a path"):
        engine.views.publish("top", "s3a:x")


@pytest.mark.parametrize("character", list("%|^"))
def test_the_error_of_a_folder_with_a_character_that_deltalake_cannot_read_names_the_parameter(tmp_path: Path, character: str) -> None:
    with pytest.raises(
        PublishError, match=r"`folder` is '.*'; legal: a folder whose whole path has none of the characters % \| \^, .*; rename the folder"
    ):
        _target(Lake(str(tmp_path / "lake")), str(tmp_path / f"a{character}b"))


CANNOT_WRITE = r"^`folder` is '.*out'; legal: a folder or a bucket to which this process and Spark can write \(.*{}.*\)$"


def test_an_error_of_the_folder_is_not_one_of_the_lake(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    lake, below_file, target = Lake(str(tmp_path / "lake")), str(tmp_path / "file" / "out"), str(tmp_path / "out")
    with pytest.raises(PublishError, match=CANNOT_WRITE.format("Not a directory")), _writing_to(_target(lake, below_file), below_file):
        pass
    with pytest.raises(PublishError, match=CANNOT_WRITE.format("No space left")), _writing_to(_target(lake, target), target):
        raise OSError(28, "No space left on device")
    with pytest.raises(LakeError, match="the lake /lake is lost"), _writing_to(_target(lake, target), target):
        raise LakeError("the lake /lake is lost")
    with (
        pytest.raises(LakeBusy, match="publish has a writer already"),
        _writing_to(_target(lake, target), target),
        _writing_to(_target(lake, target), target),
    ):
        pass
