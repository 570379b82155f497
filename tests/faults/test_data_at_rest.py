"""Attack 9, data at rest: what a pool holds leaves it and comes back whole, and nothing comes in by the back
door (invariants 3, 4 and 9)."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from shelf_run import acted, shelf_run

from coevolve import cli
from coevolve.admission import Admission, admit
from coevolve.config import EnvironmentConfig, EvolveConfig, SignalsConfig
from coevolve.config_file import load_config
from coevolve.environments.registry import make
from coevolve.errors import ConfigError, RunError
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.pool.portable import TaskFile, portable_rows, write_tasks
from coevolve.run import execute
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Task, dump, load
from small_run import make_policy, write_config

ENVIRONMENT = make(EnvironmentConfig(name="small_run:Shelf"))
SET = ("--set", "environment.name=small_run:Shelf", "--set", "environment.workers=0")
EVOLVE = EvolveConfig(every=3, tasks=3)
FORMATS = pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with tasks of several origins; nobody changes it."""
    return shelf_run(tmp_path_factory.mktemp("run") / "run")


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Exit code and standard output of ``coevolve``, in this process."""
    capsys.readouterr()
    code = cli.app(list(map(str, words)), standalone_mode=False)
    return int(code or 0), capsys.readouterr().out


def rows_of(run: Path) -> list[dict[str, Any]]:
    with Pool.read_only(run / "pool.db") as pool:
        return list(portable_rows(pool))


def taken_in(folder: Path, rows: list[Any], verifier: Any = None) -> tuple[Admission, list[dict[str, Any]]]:
    """What came of importing ``rows`` into a new pool, and what it then holds."""
    file = folder / "tasks.jsonl"
    file.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    with Pool.open(folder / "pool.db") as pool:
        judge = verifier or ReplayVerifier(ENVIRONMENT, screen=Screen(pool))
        found = admit(TaskFile(file), ENVIRONMENT, pool, judge, source=file.name)
        counted = {
            k.removeprefix("imports.refused."): v for k, v in pool.counters().items() if ".refused." in k
        }
        assert counted == found.refused, "invariant 9: every refusal is counted in the pool, too"
        return found, list(portable_rows(pool))


# Out and in again


@FORMATS
def test_a_round_trip_keeps_ids_lineage_and_evidence(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    file, again = tmp_path / f"tasks{suffix}", tmp_path / f"again{suffix}"
    rows = rows_of(run)
    assert {row["origin"]["kind"] for row in rows} >= {"unguided", "boundary"}
    assert any(row["signal"] and row["signal"]["failed"] for row in rows)
    code, said = command(capsys, "tasks", run, "--export", file)
    assert (code, said) == (0, f"{len(rows)} tasks written to {file}\n")
    code, said = command(capsys, "tasks", tmp_path / "new", "--import", file, *SET)
    assert code == 0 and said.startswith(f"{len(rows)} tasks admitted, 0 already there, 0 refused")
    assert rows_of(tmp_path / "new") == rows
    command(capsys, "tasks", tmp_path / "new", "--export", again)
    if suffix == ".jsonl":
        assert again.read_bytes() == file.read_bytes()
    assert list(TaskFile(again)) == list(TaskFile(file))


def test_both_formats_hold_the_same(run: Path, tmp_path: Path) -> None:
    with Pool.read_only(run / "pool.db") as pool:
        for suffix in (".jsonl", ".parquet"):
            assert write_tasks(pool, tmp_path / f"tasks{suffix}") == len(pool)
    lines, table = TaskFile(tmp_path / "tasks.jsonl"), TaskFile(tmp_path / "tasks.parquet")
    assert len(lines) == len(table) > 12
    assert [(r.candidate, r.signal) for r in lines] == [(r.candidate, r.signal) for r in table]


def test_a_parquet_file_opens_as_a_table_in_other_programs(run: Path, tmp_path: Path) -> None:
    from datasets import Dataset

    with Pool.read_only(run / "pool.db") as pool:
        write_tasks(pool, tmp_path / "tasks.parquet")
        known = list(pool)
    table = Dataset.from_parquet(str(tmp_path / "tasks.parquet"), cache_dir=str(tmp_path / "cache"))
    assert table["id"] == [task.id for task in known]
    assert [list(turns) for turns in table["turns"]] == [list(task.turns) for task in known]
    assert [origin["kind"] for origin in table["origin"]] == [task.origin.kind for task in known]
    assert json.loads(table[0]["solution"]) == [[dump(call) for call in turn] for turn in known[0].solution]


def test_importing_again_changes_nothing_and_is_no_refusal(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tasks.jsonl"
    command(capsys, "tasks", run, "--export", file)
    command(capsys, "tasks", tmp_path / "new", "--import", file, *SET)
    with Pool.read_only(tmp_path / "new" / "pool.db") as pool:
        digest, size = pool.digest(), len(pool)
    code, said = command(capsys, "tasks", tmp_path / "new", "--import", file)  # its own configuration
    assert code == 0 and said.startswith(f"0 tasks admitted, {size} already there, 0 refused")
    with Pool.read_only(tmp_path / "new" / "pool.db") as pool:
        assert pool.digest() == digest


def test_what_is_explored_alone_can_be_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tasks.jsonl"
    command(capsys, "explore", "-n", 4, "--out", file, *SET)
    code, said = command(capsys, "tasks", tmp_path / "new", "--import", file, *SET)
    assert code == 0 and said.startswith("4 tasks admitted")


def test_tasks_written_by_hand_need_no_id_and_no_lineage(run: Path, tmp_path: Path) -> None:
    row = {key: rows_of(run)[0][key] for key in ("environment", "world", "turns", "solution")}
    del row["world"]["key"]
    found, (held,) = taken_in(tmp_path, [row])
    assert found.admitted == 1 and held["version"] == ENVIRONMENT.version
    assert (held["origin"]["kind"], held["origin"]["explorer"]) == ("unguided", "imported")


def test_a_trainer_of_ones_own_takes_tasks_in_by_python(run: Path, tmp_path: Path) -> None:
    with Pool.read_only(run / "pool.db") as pool:
        write_tasks(pool, tmp_path / "tasks.jsonl")
    with Pool.open(tmp_path / "pool.db") as pool:
        loop = CoEvolution(ENVIRONMENT, pool, SignalsConfig(), ScriptedExplorer(ENVIRONMENT))
        found = loop.admit(TaskFile(tmp_path / "tasks.jsonl"))
        assert found.admitted == len(pool) == len(rows_of(run)) and not found.refused
        assert loop.draw(3)
        assert list(pool.signals()) == [], "another policy's weaknesses guide no exploration here"
        found = loop.admit(TaskFile(tmp_path / "tasks.jsonl"))
        assert found.known == len(pool) and not found.admitted


def test_a_run_begins_with_the_tasks_of_a_file_and_never_wipes_an_imported_pool(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, policy = tmp_path / "tasks.jsonl", tmp_path / "policy"
    rows = rows_of(run)
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows[:8], {**rows[8], "turns": ["x"]}]))
    make_policy(policy, ENVIRONMENT)
    evolution = {"steps": 1, "evolve": {"every": 0}, "pool": {"initial": 10, "tasks": str(file)}}
    config = write_config(tmp_path / "run.yaml", policy, **evolution)
    assert command(capsys, "tasks", tmp_path / "new", "--import", file, "--config", config)[0] == 1
    with pytest.raises(RunError, match="holds a pool that no run made"):
        execute(load_config(config), tmp_path / "new", Console(quiet=True))
    assert f"checked: 9 tasks to read in {file}" in command(capsys, "run", config, "--check")[1]
    code, said = command(capsys, "run", config, "--out", tmp_path / "out")
    assert code == 0 and "8 tasks admitted, 0 already there, 1 refused\nrefused: altered 1" in said
    begun = rows_of(tmp_path / "out")
    assert len(begun) == 10 and begun[:8] == rows[:8]
    assert {row["origin"]["kind"] for row in begun[8:]} == {"unguided"}


# At the door


def change(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A row with other content and no id, as somebody would write it who wants it in."""

    def changed(row: dict[str, Any]) -> dict[str, Any]:
        return {**{k: v for k, v in row.items() if k not in ("id", "signal")}, **changes}

    return changed


def world(**changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda row: change(world={**row["world"], **changes})(row)


TEST_WORLD = dump(ENVIRONMENT.worlds("test")[0])
BOX = {"name": "add_box", "arguments": {"kind": "red"}}
REFUSED: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "no JSON": ("unreadable", lambda row: json.dumps(row)[:-20]),
    "no object": ("unreadable", lambda row: "[1, 2]"),
    "no turns": ("unreadable", lambda row: {k: v for k, v in row.items() if k != "turns"}),
    "a number for a text": ("unreadable", change(turns=[7])),
    "not a number": ("unreadable", lambda row: json.dumps(change(extra={"x": float("nan")})(row))),
    "half a character": ("unreadable", change(turns=["\ud800"])),
    "nested too deep": ("unreadable", lambda row: "[" * 100_000 + "]" * 100_000),
    "an unknown origin": ("unreadable", change(origin={"kind": "mine"})),
    "other words under the old id": ("altered", lambda row: {**row, "turns": ["Do something else."]}),
    "another signal under the old id": (
        "altered",
        lambda row: {**row, "signal": {**row["signal"], "scores": [1.0]}},
    ),
    "a signal that is none": ("unreadable", lambda row: {**row, "signal": {"id": row["origin"]["signal"]}}),
    "a rollout that is none": (
        "unreadable",
        lambda row: {**row, "signal": {**row["signal"], "failed": [{"task": row["id"]}]}},
    ),
    "another environment": ("wrong_environment", change(environment="bfcl")),
    "a world of another environment": ("wrong_environment", world(environment="bfcl")),
    "a test world": ("wrong_split", change(world=TEST_WORLD)),
    "a test world that says train": ("wrong_split", change(world={**TEST_WORLD, "split": "train"})),
    "a train world that says test": ("wrong_split", world(split="test")),
    "a world of its own": ("unknown_world", world(id="mine")),
    "a start of its own": ("unknown_world", world(start={"red": 1000})),
    "a prefix that leaves no room": ("unreadable", world(prefix="x")),
    "a tool that is none": ("replay_error", change(solution=[[{"name": "__import__", "arguments": {}}]])),
    "wrong arguments": ("replay_error", change(solution=[[{"name": "add_box", "arguments": {"kind": 7}}]])),
    "nothing to do": ("no_solution", change(solution=[[]])),
    "a call that could be left out": (
        "superfluous_call",
        change(
            turns=["Please see to it that one more is there."],
            solution=[[{"name": "write_label", "arguments": {"kind": k}} for k in ("red", "blue")]],
        ),
    ),
    "the calls in the text": ("spells_out_calls", change(turns=["Now run add_box."], solution=[[BOX]])),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_may_not_enter_is_refused_by_its_reason_and_takes_no_other_with_it(
    run: Path, tmp_path: Path, what: str
) -> None:
    reason, made = REFUSED[what]
    rows = rows_of(run)
    bad = made(next(row for row in rows if row["signal"]))
    found, held = taken_in(tmp_path, [rows[0], bad, rows[1]])
    assert dict(found.refused) == {reason: 1}, found.lines()
    (refusal,) = found.shown
    assert refusal.place == "line 2" and refusal.detail
    assert held == rows[:2], "the rows before and after it are in"


def test_the_tests_own_tasks_and_doubles_are_refused(run: Path, tmp_path: Path) -> None:
    rows = rows_of(run)
    held_out = load(Task, {k: v for k, v in rows[0].items() if k in Task.__dataclass_fields__})
    judge = ReplayVerifier(ENVIRONMENT, screen=Screen(evaluation=[held_out]))
    words = {**change()(rows[0]), "solution": rows[1]["solution"], "world": rows[1]["world"]}
    again = change(turns=["In other words."])(rows[1])
    found, held = taken_in(tmp_path, [rows[0], words, rows[1], again], judge)
    assert dict(found.refused) == {"eval_overlap": 2, "duplicate": 1}
    assert [row["id"] for row in held] == [rows[1]["id"]]


def test_a_line_without_an_end_does_not_fill_the_memory(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_of(run)
    monkeypatch.setattr("coevolve.pool.portable.LONGEST", 2 * max(len(json.dumps(row)) for row in rows))
    long = change(name="x" * 100_000)(rows[1])
    found, held = taken_in(tmp_path, [rows[0], long, rows[1]])
    assert dict(found.refused) == {"too_long": 1} and held == rows[:2]


def test_the_command_lists_refusals_and_its_exit_code_says_so(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(run)[:3]
    file = tmp_path / "tasks.jsonl"
    file.write_text(
        "\n".join([json.dumps(rows[0]), "{", json.dumps({**rows[1], "turns": ["x"]}), json.dumps(rows[2])])
    )
    code, said = command(capsys, "tasks", tmp_path / "new", "--import", file, *SET)
    assert code == 1
    assert said.splitlines()[0] == "2 tasks admitted, 0 already there, 2 refused"
    assert "refused: altered 1\n  line 3 (task" in said and "refused: unreadable 1\n  line 2: " in said
    code, said = command(capsys, "tasks", tmp_path / "new", "--import", file, "--json")
    found = json.loads(said)
    assert code == 1 and found["known"] == 2 and found["refused"] == {"unreadable": 1, "altered": 1}


def test_a_file_of_another_environment_is_refused_before_anything_is_made(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tasks.jsonl"
    command(capsys, "tasks", run, "--export", file)
    environment = "environment.name=keyvalue_other:KeyValue"
    (tmp_path / "keyvalue_other.py").write_text(
        "class KeyValue:\n    '''A store.'''\n    worlds = {'a': {}, 'b': {}, 'c': {}, 'd': {}}\n"
        "    def __init__(self, start: dict) -> None:\n        self.held = dict(start)\n"
        "    def put(self, key: str) -> str:\n        '''Put a key.'''\n        return key\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="has tasks of 'Shelf', the environment here is 'KeyValue'"):
        command(capsys, "tasks", tmp_path / "new", "--import", file, *SET, "--set", environment)
    assert not (tmp_path / "new").exists()
    command(capsys, "tasks", tmp_path / "new", "--import", file, *SET)
    other = tmp_path / "other.jsonl"
    row = {**rows_of(run)[0], "environment": "KeyValue"}
    other.write_text(json.dumps({key: row[key] for key in ("environment", "world", "turns", "solution")}))
    with pytest.raises(ConfigError, match="holds tasks of 'Shelf', not of 'KeyValue'"):
        command(capsys, "tasks", tmp_path / "new", "--import", other, *SET, "--set", environment)


def test_a_run_s_own_pool_is_left_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tasks.jsonl"
    command(capsys, "tasks", run, "--export", file)
    with pytest.raises(RunError, match=r"is a run.* or start a new run with --set pool\.tasks="):
        command(capsys, "tasks", run, "--import", file)
    for name in ("tasks.csv", "tasks"):
        with pytest.raises(ConfigError, match=r"name it \.jsonl or \.parquet"):
            command(capsys, "tasks", run, "--export", tmp_path / name)
    with pytest.raises(ConfigError, match="there is no file"):
        command(capsys, "tasks", tmp_path / "new", "--import", tmp_path / "none.jsonl", *SET)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(RunError, match=r"broken\.parquet is no Parquet file"):
        command(capsys, "tasks", tmp_path / "new", "--import", tmp_path / "broken.parquet", *SET)
    with pytest.raises(RunError, match=r"cannot write .*nowhere"):
        command(capsys, "tasks", run, "--export", tmp_path / "nowhere" / "tasks.jsonl")


# The file


def test_any_sqlite_tool_reads_the_pool(run: Path) -> None:
    db = sqlite3.connect(f"file:{run / 'pool.db'}?mode=ro", uri=True)
    assert db.execute("PRAGMA user_version").fetchone()[0] > 1
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    counted = dict(db.execute("SELECT json_extract(json, '$.origin.kind'), count(*) FROM tasks GROUP BY 1"))
    with Pool.read_only(run / "pool.db") as pool:
        assert counted == pool.admitted()
    db.close()


@pytest.mark.parametrize("version", [1, 2])
def test_a_checkpoint_of_an_earlier_layout_goes_on_as_if_it_were_of_this_one(
    tmp_path: Path, version: int
) -> None:
    def a_loop(pool: Pool) -> CoEvolution:
        return CoEvolution(ENVIRONMENT, pool, SignalsConfig(), ScriptedExplorer(ENVIRONMENT), evolve=EVOLVE)

    def train(loop: CoEvolution, steps: range) -> None:
        for step in steps:
            rng = random.Random(step)
            loop.observe(step, [acted(ENVIRONMENT, task, rng) for task in loop.draw(4)])

    now, then = tmp_path / "now", tmp_path / "then"
    now.mkdir()
    with Pool.open(tmp_path / "pool.db") as pool:
        loop = a_loop(pool)
        loop.populate(8)
        train(loop, range(1, 6))
        loop.save_state(now)
        state = json.loads(json.dumps(loop.state_dict()))
        scores = {task.id: kept for task in pool if (kept := pool.scores(task.id))}
        assert len(scores) > 3
    shutil.copytree(now, then)
    db = sqlite3.connect(then / "pool.db")
    for column in ("scores", "last")[: 3 - version]:
        db.execute(f"ALTER TABLE tasks DROP COLUMN {column}")
    db.execute(f"PRAGMA user_version = {version}")
    db.close()
    older = json.loads(json.dumps(state))
    older["signals"]["forgetting"] = {"scores": scores}  # as it was written then
    found = []
    for folder, told in ((now, state), (then, older)):
        with Pool.open(folder / "live.db") as pool:
            loop = a_loop(pool)
            loop.load_state(folder)
            loop.load_state_dict(told)
            train(loop, range(6, 12))
            kept = [(pool.scores(task.id), pool.last_success(task.id)) for task in pool]
            metrics = {k: v for k, v in loop.metrics().items() if "seconds" not in k}
            found.append((pool.digest(), kept, metrics, loop.state_dict()))
    assert found[0] == found[1]
