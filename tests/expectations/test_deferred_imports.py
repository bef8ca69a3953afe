"""Deferred imports: a module is imported when one of its attributes is read first, and other imports of it do not change."""

import gc
import sys

import pytest

from expectations.deferred_imports import DeferredModule, deferred
from tests.support.new_process import output_after_import


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Two modules that no other test imports."""
    (tmp_path / "charts").mkdir()
    (tmp_path / "charts" / "__init__.py").write_text("WIDTH = 3")
    (tmp_path / "charts" / "axes.py").write_text("def count(): return 2")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("charts", "charts.axes"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("library")
def test_a_deferred_module_is_imported_when_its_attribute_is_read():
    with deferred("charts.axes"):
        from charts import axes

        assert not hasattr(axes, "__path__")  # asked for by the import system
    assert "charts.axes" not in sys.modules
    assert isinstance(axes, DeferredModule)
    assert axes.count() == 2
    assert sys.modules["charts"].axes is sys.modules["charts.axes"] is not axes


@pytest.mark.usefixtures("library")
def test_an_attribute_that_is_read_meanwhile_is_that_of_the_module():
    with deferred("charts", "charts.axes"):
        from charts import WIDTH
        from charts.axes import count

    assert (WIDTH, count()) == (3, 2)
    assert not isinstance(sys.modules["charts.axes"], DeferredModule)


@pytest.mark.usefixtures("library")
def test_other_imports_get_the_module_itself():
    import charts

    with deferred("charts"):
        import charts as meanwhile
    with deferred("charts.axes"):
        pass
    import charts.axes

    assert meanwhile is charts
    assert not isinstance(charts.axes, DeferredModule)


@pytest.mark.usefixtures("library")
def test_a_missing_attribute_is_reported_by_the_module():
    with deferred("charts"):
        import charts
    with pytest.raises(AttributeError, match="module 'charts' has no attribute 'HEIGHT'"):
        _ = charts.HEIGHT


def test_the_checks_of_a_code_location_import_no_charts_and_no_statistical_tests():
    printed = output_after_import("platform_defs.definitions", "'expectations' in sys.modules, {'altair', 'scipy.stats'} & {*sys.modules}")
    assert printed == "True set()\n"


@pytest.mark.parametrize("before", [True, False])
def test_no_garbage_is_collected_during_the_imports(before: bool):
    (gc.enable if before else gc.disable)()
    try:
        with deferred("charts"):
            assert not gc.isenabled()
        assert gc.isenabled() == before
    finally:
        gc.enable()
