"""Has foretell become slower since an earlier result file?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmarks.contestants import OURS
from benchmarks.statistics import Row


@dataclass(frozen=True, slots=True)
class Regression:
    before: Row
    after: Row

    def __str__(self) -> str:
        where = f"{self.before.suite} {self.before.name}, {self.before.threads} threads"
        if self.after.error is not None:
            return f"{where}: {self.after.error}"
        return f"{where}: ratio {_ratio(self.before)} -> {_ratio(self.after)}"


def find_regressions(before: Iterable[Row], after: Iterable[Row], tolerance: float) -> list[Regression]:
    """Rows of foretell whose ratio fell by more than `tolerance` (0.05 is 5 %) while the intervals do not overlap.

    One that ran before and fails now is a regression too; one that is only in one of the files is not compared.
    """
    earlier = {_key(row): row for row in before if row.contestant == OURS}
    pairs = [(earlier[_key(row)], row) for row in after if row.contestant == OURS and _key(row) in earlier]
    return [Regression(old, new) for old, new in pairs if _has_regressed(old, new, tolerance)]


def parse_percentage(text: str) -> float:
    """ "5%" -> 0.05. Raises ValueError for what is not a percentage from 0 to 100."""
    number = float(text.strip().removesuffix("%"))
    if not text.strip().endswith("%") or not 0 <= number <= 100:
        raise ValueError(f"expected a percentage such as 5%, got {text}")
    return number / 100


def _has_regressed(old: Row, new: Row, tolerance: float) -> bool:
    if old.ratio_to_best_peer is None or old.interval is None:
        return False
    if new.ratio_to_best_peer is None or new.interval is None:
        return new.error is not None
    fell = new.ratio_to_best_peer < (1 - tolerance) * old.ratio_to_best_peer
    return fell and new.interval[1] < old.interval[0]


def _key(row: Row) -> tuple[str, str, int]:
    return row.suite, row.name, row.threads


def _ratio(row: Row) -> str:
    assert row.interval is not None
    return f"{row.ratio_to_best_peer:.2f} ({row.interval[0]:.2f}-{row.interval[1]:.2f})"
