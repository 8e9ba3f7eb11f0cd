"""How long to go on: `30s`, `5m`, `1h`, or seconds."""

from __future__ import annotations

import re

from foretell.support.errors import UsageError

UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(text: str) -> float:
    """Seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise UsageError(
            "a budget is not a time",
            where="--budget",
            expected="a number and s, m or h",
            got=text,
            hint="`--budget 5m` measures for five minutes",
        )
    return float(match[1]) * UNIT_S[match[2]]
