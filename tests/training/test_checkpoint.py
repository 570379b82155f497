"""A checkpoint is complete or ignored, and the reason is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from coevolve.training.checkpoint import MANIFEST, SCRATCH, latest_complete, publish


def write(root: Path, step: int, keep: int = 9) -> Path:
    folder = root / SCRATCH
    (folder / "source").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(bytes(range(256)) * step)
    (folder / "source" / "pool.db").write_text(f"pool at {step}")
    return publish(folder, root, step, {"metrics_bytes": 10 * step}, keep)


def test_the_newest_is_found_by_number_not_by_name(tmp_path: Path) -> None:
    for step in (2, 9, 10):
        write(tmp_path, step)
    found = latest_complete(tmp_path)
    assert found.path == tmp_path / "step-10"
    assert (found.step, found.facts, found.ignored) == (10, {"metrics_bytes": 100}, ())


def test_an_empty_or_missing_folder_has_none(tmp_path: Path) -> None:
    assert latest_complete(tmp_path).path is None
    assert latest_complete(tmp_path / "nowhere").path is None


def truncate(folder: Path) -> None:
    (folder / "weights.bin").write_bytes(b"cut")


def flip(folder: Path) -> None:
    data = bytearray((folder / "weights.bin").read_bytes())
    data[100] ^= 1
    (folder / "weights.bin").write_bytes(bytes(data))


def lose(folder: Path) -> None:
    (folder / "source" / "pool.db").unlink()


def unseal(folder: Path) -> None:
    (folder / MANIFEST).unlink()


def scribble(folder: Path) -> None:
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:-20])


def list_instead(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps(["not", "a", "manifest"]))


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (truncate, "weights.bin has 3 bytes"),
        (flip, "weights.bin was altered"),
        (lose, "source/pool.db is missing"),
        (unseal, "no manifest"),
        (scribble, "cannot be read"),
        (list_instead, "cannot be read"),
    ],
)
def test_a_broken_one_is_passed_over_with_the_reason(
    damage: Callable[[Path], None], why: str, tmp_path: Path
) -> None:
    write(tmp_path, 1)
    damage(write(tmp_path, 2))
    found = latest_complete(tmp_path)
    assert found.path == tmp_path / "step-1"
    (ignored,) = found.ignored
    assert ignored.path == tmp_path / "step-2" and why in str(ignored)


def test_what_is_still_being_written_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / SCRATCH / "checkpoint-2").mkdir(parents=True)
    found = latest_complete(tmp_path)
    assert found.step == 1 and found.ignored == ()


def test_a_broken_one_is_replaced_when_its_step_comes_again(tmp_path: Path) -> None:
    truncate(write(tmp_path, 3))
    write(tmp_path, 3)
    assert latest_complete(tmp_path).step == 3


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        write(tmp_path, step, keep=2)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-4", "step-5"]
