"""Deadlines, stepped through by hand."""

from __future__ import annotations

from runherd.simulator.timers import Timer, Timers


class At:
    """A time that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_calls_are_made_in_order_and_not_before_their_time() -> None:
    time, made = At(), list[str]()
    timers = Timers(time)
    timers.after(2, lambda: made.append("second"))
    timers.after(1, lambda: made.append("first"))
    timers.after(2, lambda: made.append("third"))
    timers.run_due()
    assert made == []
    time.now = 2
    timers.run_due()
    assert made == ["first", "second", "third"]
    assert timers.earliest() is None


def test_a_call_may_set_another_that_is_due_at_once() -> None:
    time, made = At(), list[int]()
    timers = Timers(time)

    def again() -> None:
        timers.after(0, lambda: made.append(1))

    timers.after(0, again)
    timers.run_due()
    assert made == [1]


def test_cancelled_calls_are_not_made_and_are_let_go() -> None:
    time, made = At(), list[int]()
    timers = Timers(time)
    kept = timers.after(5000, lambda: made.append(1))
    for _ in range(5000):
        timers.after(4000, lambda: made.append(2)).cancel()
    assert len(timers) == 1
    assert timers.cancelled <= 2500
    assert timers.earliest() is kept
    time.now = 6000
    timers.run_due()
    kept.cancel()
    assert made == [1]
    assert len(timers) == 0


def test_whoever_drives_the_timers_is_told_of_new_ones() -> None:
    timers, told = Timers(At()), list[Timer]()
    timers.on_set = told.append
    timer = timers.after(3, lambda: None)
    assert told == [timer]
