from __future__ import annotations

from pathlib import Path

import pytest

from foretell.support.atomic_write import atomic_write


@pytest.mark.parametrize("durable", [True, False])
def test_the_file_is_replaced_at_the_end(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with atomic_write(path, durable=durable) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_everything_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), atomic_write(path) as file:
        file.write(b"new")
        raise KeyError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
