"""The collector is off as long as anybody asks for that, and then as it was."""

from __future__ import annotations

import gc
from collections.abc import Generator
from threading import Event, Thread

import pytest

from foretell.support.collect_later import collect_later


@pytest.fixture(autouse=True)
def collecting() -> Generator[None]:
    """As it was, whatever a test does."""
    was_on = gc.isenabled()
    gc.enable()
    yield
    if not was_on:
        gc.disable()


def test_off_inside_and_on_after() -> None:
    with collect_later():
        assert not gc.isenabled()
        with collect_later():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collect_later():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_what_was_off_stays_off() -> None:
    gc.disable()
    with collect_later():
        pass
    assert not gc.isenabled()


def test_the_last_thread_turns_it_on() -> None:
    begun, finish = Event(), Event()

    def other() -> None:
        with collect_later():
            begun.set()
            finish.wait(10)

    thread = Thread(target=other)
    with collect_later():
        thread.start()
        assert begun.wait(10)
    assert not gc.isenabled()
    finish.set()
    thread.join(10)
    assert gc.isenabled()
