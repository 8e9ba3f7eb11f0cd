"""Frozen dataclasses: as Python's own, but for the time they take to make."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace

import pytest

from foretell.support.frozen import frozen


@frozen
class Point:
    x: int
    y: int = 2

    @property
    def total(self) -> int:
        return self.x + self.y


class Noted:
    __slots__ = ("note",)
    note: str


@frozen
class Marked(Noted):
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "note", f"made {self.name}")


@dataclass(frozen=True, slots=True)
class Usual:
    x: int
    y: int = 2


def test_it_is_made_compared_and_shown_as_a_dataclass() -> None:
    assert Point(1) == Point(x=1, y=2) != Point(1, 3)
    assert hash(Point(1)) == hash(Usual(1))
    assert repr(Point(1)) == repr(Usual(1)).replace("Usual", "Point")
    assert replace(Point(1), x=3).total == 5
    assert pickle.loads(pickle.dumps(Point(4))) == Point(4)


def test_it_matches_by_place() -> None:
    match Point(1, 5):
        case Point(1, y):
            assert y == 5
        case _:
            pytest.fail("it does not match")


def test_what_is_done_after_is_done() -> None:
    assert Marked("a").note == "made a"


def test_nothing_changes_it() -> None:
    with pytest.raises(FrozenInstanceError):
        Point(1).x = 2  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("arguments", [(), (1, 2, 3)])
def test_wrong_arguments_are_told(arguments: tuple[int, ...]) -> None:
    with pytest.raises(TypeError, match=r"Point\.__init__\(\)"):
        Point(*arguments)
