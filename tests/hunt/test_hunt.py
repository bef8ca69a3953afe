"""The short form of the hunt, and that the hunter repeats and cuts down what it finds."""

from tests.hunt.history import generate, live, shrink
from tests.hunt.process import Trouble
from tests.hunt.store import Store
from tests.hunt.world import Action


def test_a_seed_makes_one_history() -> None:
    assert generate(7) == generate(7)
    assert str(generate(7)).startswith("seed 7: Setup(")
    assert generate(7).actions != generate(8).actions


def test_an_action_says_what_troubles_it() -> None:
    assert str(Action("ingest", 1, (), (Trouble("kill", "write", 2),))) == "ingest() by process 1 [kill at write 2]"


def test_a_commit_follows_the_version_that_was_seen_or_fails() -> None:
    store = Store()
    assert store.commit("t", lambda rows: (*rows, (1,)), {}, written=1, seen=-1) == 0
    assert store.commit("t", lambda rows: (*rows, (2,)), {}, written=1) == 1
    assert store.tables["t"].newest.rows == ((1,), (2,))
    assert store.lose("t", torn=False)
    assert (store.tables["t"].newest.rows, store.restore()) == (((1,),), [])
    assert store.tables["t"].newest.number == 1


def test_a_finding_repeats_and_stays_when_it_is_cut_down() -> None:
    seed, finding = next((n, found) for n in range(500) if (found := live(generate(n))) is not None)
    again = live(generate(seed))
    assert str(again) == str(finding)
    history, cut = shrink(generate(seed), finding)
    assert cut.kind == finding.kind
    assert len(history.actions) < len(generate(seed).actions)
