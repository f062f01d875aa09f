"""The resident set under every order of events: bounds, pins, use, and what is let go of first."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from edge.service.adapters.resident import Limits, Load, Resident, Residents, TooLarge, Wait, plan_load, plan_unload

NAMES = "abcdef"
LIMITS = Limits(count=3, size_bytes=100)


def adapter(name: str, size_bytes: int = 10, version: int = 1) -> Resident:
    return Resident(f"{name}{version}", name, size_bytes)


def holding(*names: str, **pins: bool) -> Residents:
    residents = Residents()
    for name in names:
        plan = plan_load(residents, (adapter(name),), frozenset(), LIMITS)
        assert isinstance(plan, Load)
        residents = residents.after(plan)
    return replace(residents, pinned=frozenset(pins))


def test_the_one_used_longest_ago_goes() -> None:
    residents = holding("a", "b", "c").used(["a1"])
    plan = plan_load(residents, (adapter("d"),), frozenset(), LIMITS)
    assert isinstance(plan, Load)
    assert [each.name for each in plan.evicted] == ["b"]
    assert [each.name for each in plan.loaded] == ["a", "c", "d"]


def test_lr_03_what_is_used_is_never_let_go_of() -> None:
    """LR-03: the newcomer waits instead."""
    assert plan_load(holding("a", "b", "c"), (adapter("d"),), frozenset({"a1", "b1", "c1"}), LIMITS) == Wait()
    plan = plan_load(holding("a", "b", "c"), (adapter("d"),), frozenset({"a1", "c1"}), LIMITS)
    assert isinstance(plan, Load)
    assert [each.name for each in plan.evicted] == ["b"]


def test_a_pin_stays_and_what_cannot_fit_beside_it_is_told_so() -> None:
    residents = holding("a", "b", "c", a=True, b=True, c=True)
    assert plan_load(residents, (adapter("d"),), frozenset(), LIMITS) == TooLarge(40, 4)
    assert plan_load(Residents(), (adapter("d", 101),), frozenset(), LIMITS) == TooLarge(101, 1)


def test_a_new_version_replaces_the_old_one_even_while_that_is_used_or_pinned() -> None:
    residents = holding("a", "b", "c", a=True)
    plan = plan_load(residents, (adapter("a", version=2),), frozenset({"a1", "b1", "c1"}), LIMITS)
    assert isinstance(plan, Load)
    assert [each.digest for each in plan.evicted] == ["a1"]
    assert [each.digest for each in plan.loaded] == ["b1", "c1", "a2"]


def test_adapters_of_one_request_do_not_push_each_other_out() -> None:
    plan = plan_load(holding("a", "b", "c"), (adapter("a"), adapter("d")), frozenset({"b1"}), LIMITS)
    assert isinstance(plan, Load)
    assert {each.name for each in plan.loaded} == {"a", "b", "d"}
    assert [each.name for each in plan.added] == ["d"]


def test_unloading_takes_every_version() -> None:
    plan = plan_unload(holding("a", "b"), "a")
    assert [each.name for each in plan.evicted] == ["a"]
    assert [each.name for each in plan.loaded] == ["b"]


_event = st.tuples(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True),
    st.integers(1, 60),
    st.integers(1, 2),
    st.sets(st.sampled_from([f"{name}{version}" for name in NAMES for version in (1, 2)])),
    st.sampled_from(["load", "pin", "unpin", "unload"]),
)


@given(st.lists(_event, max_size=30), st.integers(1, 4), st.integers(1, 120))
def test_whatever_happens_the_bounds_hold(
    events: list[tuple[list[str], int, int, set[str], str]], count: int, size_bytes: int
) -> None:
    limits, residents = Limits(count, size_bytes), Residents()
    for names, size, version, in_use, what in events:
        before = residents
        if what == "pin":
            residents = residents.pin(names[0])
            continue
        if what == "unpin":
            residents = residents.unpin(names[0])
            continue
        if what == "unload":
            residents = residents.after(plan_unload(residents, names[0]))
            assert names[0] not in {each.name for each in residents.loaded}
            continue
        wanted = tuple(adapter(name, size, version) for name in names)
        plan = plan_load(residents, wanted, frozenset(in_use), limits)
        if not isinstance(plan, Load):
            assert residents == before
            continue
        residents = residents.after(plan)
        loaded = {each.digest for each in residents.loaded}
        assert residents.holds(each.digest for each in wanted)
        assert len(residents.loaded) <= count
        assert sum(each.size_bytes for each in residents.loaded) <= size_bytes
        assert len(loaded) == len(residents.loaded)
        assert len({each.name for each in residents.loaded}) == len(residents.loaded)
        assert loaded | {each.digest for each in plan.evicted} == {each.digest for each in before.loaded} | {
            each.digest for each in plan.added
        }
        for gone in plan.evicted:
            superseded = gone.name in names
            assert superseded or gone.digest not in in_use
            assert superseded or gone.name not in residents.pinned
