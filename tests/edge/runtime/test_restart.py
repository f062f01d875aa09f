"""When an engine that ended is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from edge.runtime.restart import History, RestartPolicy, wait_before_restart_s

POLICY = RestartPolicy(base_s=0.25, cap_s=30.0, stable_s=60.0, refusals_limit=3)


def test_waits_grow_and_are_capped() -> None:
    history, waits = History(), []
    for _ in range(12):
        history = history.after_failed_start(refused=False)
        waits.append(wait_before_restart_s(history, POLICY, fraction=0.999))
    assert waits[:4] == [0.24975, 0.4995, 0.999, 1.998]
    assert waits[-1] == 0.999 * 30.0


def test_a_stable_run_forgets_the_failures_before_it() -> None:
    history = History(failures=9, refusals=2).after_exit(60.0, POLICY)
    assert history == History(failures=1, was_ready=True)
    assert History(failures=9).after_exit(59.9, POLICY) == History(failures=10, was_ready=True)


def test_a_process_that_was_ready_is_never_waited_for_long_however_often_it_crashed() -> None:
    """Twenty crashes in a row: each time there is another engine within two seconds, its start included."""
    history = History()
    for _ in range(20):
        history = history.after_exit(1.0, RestartPolicy())
        wait_s = wait_before_restart_s(history, RestartPolicy(), fraction=0.999)
        assert wait_s is not None
        assert wait_s < 1.0
    failed = history.after_failed_start(refused=False)
    assert wait_before_restart_s(failed, RestartPolicy(), fraction=0.999) == 0.999 * 30.0


def test_refusals_in_a_row_are_final_and_anything_else_between_them_is_not() -> None:
    history = History()
    for _ in range(2):
        history = history.after_failed_start(refused=True)
        assert wait_before_restart_s(history, POLICY, fraction=0.5) is not None
    between = history.after_failed_start(refused=False)
    assert between.refusals == 0
    assert wait_before_restart_s(history.after_failed_start(refused=True), POLICY, fraction=0.5) is None


@given(failures=st.integers(1, 10**6), fraction=st.floats(0, 1, exclude_max=True))
def test_a_wait_lies_between_zero_and_the_cap(failures: int, fraction: float) -> None:
    wait_s = wait_before_restart_s(History(failures=failures), POLICY, fraction=fraction)
    assert wait_s is not None
    assert 0 <= wait_s <= POLICY.cap_s
