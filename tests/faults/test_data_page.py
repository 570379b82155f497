"""``docs/data.md`` tells the truth: its queries, commands and code run as they stand there."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from shelf_run import shelf_run

from coevolve import cli
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.inspection import inspect
from coevolve.pool import Pool
from coevolve.pool.portable import write_tasks
from coevolve.rundir import RunDirectory
from small_run import Shelf, make_policy, surroundings, write_config

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the page's reader has it."""
    folder = tmp_path_factory.mktemp("page")
    shelf_run(folder / "runs" / "demo")
    make_policy(folder / "policy", ToolboxEnvironment(Shelf))
    write_config(folder / "demo.yaml", folder / "policy", steps=1, evolve={"every": 0})
    return folder


def test_the_queries_run_and_the_tables_are_all_there(here: Path) -> None:
    db = sqlite3.connect(f"file:{here}/runs/demo/pool.db?mode=ro", uri=True)
    queries = [query for query in block("sql").split(";") if query.strip()]
    assert len(queries) == 3
    for query in queries:
        assert db.execute(query).fetchall(), query
    tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert set(re.findall(r"^\| `(\w+)` \| (?:a|what|such)", PAGE, re.MULTILINE)) == tables
    db.close()


def test_the_commands_run_in_the_order_shown(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    for line in block("sh").splitlines():
        program, *words = line.split()
        assert program == "coevolve" and cli.app(words, standalone_mode=False) in (None, 0), line
    assert (here / "tasks.parquet").exists() and (here / "runs" / "next" / "summary.json").exists()


def test_the_code_runs(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(here)
    with Pool.read_only("runs/demo/pool.db") as pool:
        size = write_tasks(pool, Path("tasks.jsonl"))
    program = block("python").replace('name="bfcl"', 'name="small_run:Shelf"')
    line = [sys.executable, "-c", f"{program}\nimport sys; print('torch' in sys.modules)"]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=surroundings())
    assert done.stdout == f"{size} {{}}\nFalse\n"


def test_what_the_doctor_says_is_what_the_page_lists(here: Path) -> None:
    said = [checked.what for checked in inspect(RunDirectory(here / "runs" / "demo"), Console(quiet=True))]
    table = PAGE[PAGE.index("| line |") :]
    assert re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE) == said
