"""``coevolve doctor --run`` under attack: everything in a run directory is damaged, one thing at a time, and
the doctor names it, by the right line and the right culprit (invariants 3, 4 and 8)."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from shelf_run import shelf_run

from coevolve import cli
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.errors import RunError
from coevolve.evaluation.heldout import read, save
from coevolve.types import Task, canonical, dump, load
from small_run import Shelf

LINES = (
    "configuration",
    "checkpoints",
    "pool file",
    "content addresses",
    "lineage",
    "metrics",
    "held-out material",
    "replay",
)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture
def run(sound: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(sound, tmp_path / "run")
    return tmp_path / "run"


def doctor(capsys: pytest.CaptureFixture[str], run: Path) -> tuple[int, dict[str, str]]:
    """Exit code, and what was said of each thing."""
    capsys.readouterr()
    code = cli.app(["doctor", "--run", str(run)], standalone_mode=False)
    said = {}
    for line in capsys.readouterr().out.splitlines():
        mark, _, rest = line.partition(" ")
        what, _, detail = rest.strip().partition(": ")
        said[what] = f"{mark} {detail}"
    return int(code or 0), said


def sql(run: Path, *statements: str, values: tuple[Any, ...] = ()) -> None:
    db = sqlite3.connect(run / "pool.db")
    for statement in statements:
        changed = db.execute(statement, values).rowcount
        assert changed, f"nothing was damaged by {statement}"
    db.commit()
    db.close()


def edit(run: Path, table: str, column: str, change: Callable[[Any], Any], where: str = "1") -> str:
    """Change the JSON of the last row that qualifies; returns its id, or its number where it has none."""
    db = sqlite3.connect(run / "pool.db")
    name = "row" if table in ("rollouts", "candidates") else "id"
    query = f"SELECT row, {name}, {column} FROM {table} WHERE {where} ORDER BY row DESC LIMIT 1"
    row, key, text = db.execute(query).fetchone()
    db.execute(f"UPDATE {table} SET {column} = ? WHERE row = ?", (canonical(change(json.loads(text))), row))
    db.commit()
    db.close()
    return str(key)


def changed_task(run: Path, change: Callable[[Task], Task], where: str = "1") -> str:
    """Put another task in a task's place, with an id that is right: as somebody would who knows how."""
    db = sqlite3.connect(run / "pool.db")
    query = f"SELECT row, candidate, json FROM tasks WHERE {where} ORDER BY row DESC LIMIT 1"
    row, candidate, text = db.execute(query).fetchone()
    task = change(load(Task, json.loads(text)))
    db.execute("UPDATE tasks SET id = ?, json = ? WHERE row = ?", (task.id, canonical(dump(task)), row))
    db.execute("UPDATE candidates SET id = ? WHERE row = ?", (task.id, candidate))
    db.commit()
    db.close()
    return task.id


def flip(path: Path, at: int = -1) -> None:
    """Change one byte."""
    data = bytearray(path.read_bytes())
    data[at if at >= 0 else len(data) // 2] ^= 0xFF
    path.write_bytes(data)


def test_a_sound_run_is_sound_finished_or_not(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = doctor(capsys, sound)
    assert code == 0 and tuple(said) == LINES and all(line.startswith("ok ") for line in said.values()), said
    code, said = doctor(capsys, shelf_run(tmp_path / "other", finished=False))
    assert code == 0 and all(line.startswith("ok ") for line in said.values()), said


def test_an_imported_pool_is_sound(sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, new = tmp_path / "tasks.jsonl", tmp_path / "new"
    cli.app(["tasks", str(sound), "--export", str(file)], standalone_mode=False)
    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[-5:]))  # not all parents
    words = ["tasks", str(new), "--import", str(file), "--set", "environment.name=small_run:Shelf"]
    cli.app([*words, "--set", "environment.workers=0"], standalone_mode=False)
    code, said = doctor(capsys, new)
    assert code == 0 and said["metrics"] == "skipped no step has been measured", said
    assert said["replay"].startswith("ok 5 tasks")


def test_a_run_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match="is not a run directory"):
        doctor(capsys, tmp_path)


Damage = Callable[[Path], str | None]


def checkpoint_of_another_pool(run: Path) -> None:
    """A whole, well-sealed checkpoint whose pool and state are not of one moment."""
    old, new = run / "checkpoints" / "step-3", run / "checkpoints" / "step-6"
    manifest = json.loads((new / "manifest.json").read_text())
    for name in ("source/pool.db",):
        shutil.copy(old / name, new / name)
        manifest["files"][name] = json.loads((old / "manifest.json").read_text())["files"][name]
    (new / "manifest.json").write_text(json.dumps(manifest))


def sealed_test_in_the_pool(run: Path) -> str:
    """A task with a test's words, in a train world."""
    held = read(run / "heldout" / "unguided.jsonl").tasks[0]
    return changed_task(run, lambda task: replace(task, turns=held.turns))


def world_of_the_tests(run: Path) -> str:
    """A task in a test world that says that it is a train world."""
    world = replace(ToolboxEnvironment(Shelf).worlds("test")[0], split="train")
    return changed_task(run, lambda task: replace(task, world=world))


def seal_broken(run: Path) -> None:
    path = run / "heldout" / "unguided.jsonl"
    test = read(path)
    save(replace(test, tasks=test.tasks[:-1]), path)


def no_such_parent(run: Path) -> str:
    def lost(task: dict[str, Any]) -> dict[str, Any]:
        return {**task, "origin": {**task["origin"], "parents": ["feedfacefeedface"]}}

    return edit(run, "tasks", "json", lost)


def other_solution(run: Path) -> str:
    """A task whose call is none of the environment's."""

    def broken(task: Task) -> Task:
        call = replace(task.solution[0][0], name="burn_down")
        return replace(task, solution=((call,), *task.solution[1:]))

    return changed_task(run, broken)


def metrics_line(run: Path, at: int, line: str | None) -> None:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[at : at + 1] = [] if line is None else [line]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def counted(run: Path, at: int, **changes: int) -> None:
    line = json.loads((run / "metrics.jsonl").read_text().splitlines()[at])
    metrics_line(run, at, json.dumps({**line, **changes}))


def summed(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["pool"]["final"] += 1
    (run / "summary.json").write_text(json.dumps(summary))


DAMAGES: dict[str, tuple[str, str, Callable[[Path], object]]] = {
    "a key that is none": (
        "configuration",
        "config.yaml.*stepz",
        lambda run: (run / "config.yaml").write_text("stepz: 3\n"),
    ),
    "no configuration": ("configuration", r"config\.yaml", lambda run: (run / "config.yaml").unlink()),
    "half of the stages": (
        "configuration",
        r"stages\.json",
        lambda run: (run / "stages.json").write_text('{"sealed": {'),
    ),
    "a flipped byte in the weights": (
        "checkpoints",
        r"step-6: model\.safetensors was altered",
        lambda run: flip(run / "checkpoints" / "step-6" / "model.safetensors"),
    ),
    "a truncated file": (
        "checkpoints",
        r"step-3: source\.json has 10 bytes",
        lambda run: (run / "checkpoints" / "step-3" / "source.json").write_text("{" * 10),
    ),
    "a deleted file": (
        "checkpoints",
        r"step-6: source/pool\.db is missing",
        lambda run: (run / "checkpoints" / "step-6" / "source" / "pool.db").unlink(),
    ),
    "no manifest": (
        "checkpoints",
        "step-6: it has no manifest",
        lambda run: (run / "checkpoints" / "step-6" / "manifest.json").unlink(),
    ),
    "a checkpoint of two moments": (
        "checkpoints",
        r"step-6: source/pool\.db has .* source\.json says",
        checkpoint_of_another_pool,
    ),
    "a checkpoint under another name": (
        "checkpoints",
        "step-9: its manifest says step 6",
        lambda run: (run / "checkpoints" / "step-6").rename(run / "checkpoints" / "step-9"),
    ),
    "no pool at all": ("pool file", r"pool\.db", lambda run: (run / "pool.db").write_bytes(b"nothing" * 999)),
    "half a pool": (
        "pool file",
        r"pool\.db|malformed|read to its end",
        lambda run: (run / "pool.db").write_bytes((run / "pool.db").read_bytes()[:20_000]),
    ),
    "a lost row": (
        "pool file",
        "1 rows of attempts are missing",
        lambda run: sql(run, "DELETE FROM attempts WHERE row = 3"),
    ),
    "a gap in the ranks": (
        "pool file",
        "ranks go up to 900",
        lambda run: sql(run, "UPDATE tasks SET rank = 900 WHERE row = 2"),
    ),
    "a pointer to nowhere": (
        "pool file",
        "row 1 of attempts points to a row of tasks that is not there",
        lambda run: sql(run, "UPDATE attempts SET task = 999 WHERE row = 1"),
    ),
    "other words in a task": (
        "content addresses",
        "task {}: its content is that of",
        lambda run: edit(run, "tasks", "json", lambda task: {**task, "turns": ["Do it."]}),
    ),
    "a task that is no JSON": (
        "content addresses",
        "task .* cannot be read",
        lambda run: sql(run, "UPDATE tasks SET json = '{' WHERE row = 1"),
    ),
    "another origin in the listing": (
        "content addresses",
        "its origin is unguided, listed as rare",
        lambda run: sql(run, "UPDATE tasks SET kind = 'rare' WHERE row = 1"),
    ),
    "other words in a refused candidate": (
        "content addresses",
        "refused candidate {} .*its content is that of",
        lambda run: edit(run, "candidates", "task", lambda t: {**t, "turns": ["Do it."]}, "task IS NOT NULL"),
    ),
    "other scores in a signal": (
        "content addresses",
        "signal {}: its content is that of",
        lambda run: edit(run, "signals", "scores", lambda scores: [*scores, 1.0]),
    ),
    "a parent that is not there": ("lineage", "task {}: its parent feedfacefeedface is not", no_such_parent),
    "a signal that is not there": (
        "lineage",
        "task .*: its signal 0123 is not in the pool",
        lambda run: sql(
            run, "UPDATE tasks SET json = json_set(json, '$.origin.signal', '0123') WHERE kind = 'boundary'"
        ),
    ),
    "no signal where there was one": (
        "lineage",
        "task .*: no signal is named, though its origin is boundary",
        lambda run: sql(
            run, "UPDATE tasks SET json = json_set(json, '$.origin.signal', NULL) WHERE kind = 'boundary'"
        ),
    ),
    "a refused candidate's signal": (
        "lineage",
        "refused candidate .*: its signal 0123 is not",
        lambda run: sql(run, "UPDATE candidates SET signal = '0123' WHERE task IS NOT NULL"),
    ),
    "an exploration that is not there": (
        "lineage",
        "the exploration by scripted that it was made of is not there",
        lambda run: sql(run, "UPDATE candidates SET triplets = '[]' WHERE row = 1"),
    ),
    "a verdict taken back": (
        "lineage",
        r"its verdict \(candidate \d+\) is not there",
        lambda run: sql(
            run, "UPDATE candidates SET admitted = 0 WHERE row = (SELECT max(candidate) FROM tasks)"
        ),
    ),
    "a rollout that is not there": (
        "lineage",
        "signal {}: its rollout 4711 is not there",
        lambda run: edit(run, "signals", "failed", lambda rows: [*rows, 4711]),
    ),
    "a rollout of a stranger": (
        "lineage",
        "rollout {}: its task nobody is not in the pool",
        lambda run: edit(run, "rollouts", "json", lambda rollout: {**rollout, "task": "nobody"}),
    ),
    "a step left out": (
        "metrics",
        "step 4 stands in metrics.jsonl where step 3 should",
        lambda run: metrics_line(run, 2, None),
    ),
    "half a line": (
        "metrics",
        r"line 4 of metrics\.jsonl cannot be read",
        lambda run: metrics_line(run, 3, '{"step": 4'),
    ),
    "another count": (
        "metrics",
        r"step 2: \d+ solved rollouts in metrics\.jsonl, \d+ in the pool",
        lambda run: counted(run, 1, solved=99),
    ),
    "a log that was cut": (
        "metrics",
        r"metrics\.jsonl has \d+ bytes, at step 6 it had",
        lambda run: metrics_line(run, 5, None),
    ),
    "a summary of another pool": ("metrics", r"summary\.json: pool\.final is 31, counted 30", summed),
    "a test's words in the pool": ("held-out material", "task {}: eval_overlap", sealed_test_in_the_pool),
    "a test world in the pool": (
        "held-out material",
        "task {}: world .* is no train world",
        world_of_the_tests,
    ),
    "another test than was sealed": ("held-out material", r"heldout/unguided\.jsonl has seal", seal_broken),
    "a sealed test that is gone": (
        "held-out material",
        r"heldout/unguided\.jsonl cannot be read",
        lambda run: (run / "heldout" / "unguided.jsonl").unlink(),
    ),
    "a task that does not replay": ("replay", "task {}: replay_error", other_solution),
    "a task that replays to another end": (
        "replay",
        "other states than when it was admitted",
        lambda run: sql(
            run, "UPDATE candidates SET evidence = json_set(evidence, '$.states[1]', 'ffff') WHERE row = 1"
        ),
    ),
    "an environment that is not there": (
        "environment",
        "nothing was replayed: .*no class 'Gone'",
        lambda run: (run / "config.yaml").write_text(
            (run / "config.yaml").read_text().replace("small_run:Shelf", "small_run:Gone")
        ),
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_doctor_names_what_is_damaged(run: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    what, pattern, done = DAMAGES[damage]
    culprit = done(run)
    code, said = doctor(capsys, run)
    assert code == 1
    named = pattern.format(culprit) if isinstance(culprit, str) else pattern
    assert said[what].startswith("FAULT ") and re.search(named, said[what]), said


def test_damage_to_one_thing_is_not_laid_at_another_s_door(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(run / "checkpoints" / "step-3" / "model.safetensors")
    counted(run, 0, failed=50)
    code, said = doctor(capsys, run)
    assert code == 1
    assert {what for what, line in said.items() if line.startswith("FAULT ")} == {"checkpoints", "metrics"}


def test_of_many_culprits_the_first_are_named_and_all_are_counted(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql(run, "UPDATE candidates SET triplets = '[]' WHERE admitted")
    _, said = doctor(capsys, run)
    assert said["lineage"].count("the exploration by") == 3 and said["lineage"].endswith("; and 27 more")


def test_a_flipped_byte_anywhere_in_the_pool_is_never_an_exception(
    sound: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = (sound / "pool.db").stat().st_size
    found = 0
    for number in range(12):
        run = tmp_path / f"run{number}"
        shutil.copytree(sound, run)
        flip(run / "pool.db", (number * 7919 + 100) * 31 % size)
        code, _ = doctor(capsys, run)
        found += code
    assert found, "of a dozen flipped bytes at least one lay in something that is used"
