"""One world in AppWorld's package: what an agent's code does to it, what differs then, how it is judged."""

from __future__ import annotations

import functools
import gc
import os
import random
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

FAILED = "Execution failed. Traceback:"
NEUTRAL = "Your task is in the conversation."
"""What a world shows as its task where the task is not the benchmark's own."""
LONGEST = 1_000_000
"""Characters of a block's answer that leave this process."""
_CHANGE = re.compile(
    r"\s*(?:INSERT(?:\s+OR\s+\w+)?\s+INTO|UPDATE|DELETE\s+FROM)\s+[\"'`]?(\w+)", re.IGNORECASE
)
_DERIVED = ("record_hash",)
"""Columns that follow from the others."""


class Host:
    """One world in this process, and the requests that it answers."""

    def __init__(self, guard: Callable[[Callable[..., Any]], Callable[..., Any]], seconds: int) -> None:
        self._guard = guard
        self._seconds = seconds
        self._world: Any = None
        self._marks: dict[str, int] = {}
        self._starts: dict[str, sqlite3.Connection] = {}

    def open(self, task: str, neutral: bool) -> None:
        """Start the world of ``task``; ``neutral`` hides the task's own instruction from the world."""
        from appworld.environment import AppWorld

        # What an agent's code draws is the same whenever it is run again (AppWorld seeds ``random`` itself).
        os.urandom = random.Random(100).randbytes
        self._world = world = AppWorld(
            task_id=task,
            experiment_name=f"world-{os.getpid()}",
            load_ground_truth=False,
            timeout_seconds=self._seconds,
        )
        world._shell_run_cell = self._guard(world._shell_run_cell)
        # The package writes its logs and all databases to the disk after every block; only its evaluation
        # reads any of that, and then it is written.
        world.save_logs = lambda: None
        world._save_state = lambda directory: None
        if neutral:
            (shown,) = world.models.supervisor.Task.all()
            shown.instruction = NEUTRAL
            shown.save()
            self._starts["supervisor"] = sqlite3.connect(":memory:")
            self._database("supervisor")[0].backup(self._starts["supervisor"])
        self._marks = {app: len(self._database(app)[1].changes) for app in self._apps()}

    def execute(self, code: str) -> dict[str, Any]:
        """Run one block of an agent's code."""
        try:
            text = str(self._world.execute(code))
        except MemoryError:
            raise
        except (
            BaseException
        ) as error:  # raised on purpose, or too deeply nested for the package's own reading
            self._world.safety_guard.disable()
            text = f"{FAILED}\n{type(error).__name__}: {error}"
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 2]}\n[...]\n{text[-LONGEST // 2 :]}"
        return {"text": text, "failed": text.startswith(FAILED), "completed": self._completed()}

    def replay(self, blocks: list[str]) -> list[str]:
        """Run blocks one after another; their texts."""
        return [self.execute(code)["text"] for code in blocks]

    def changes(self) -> dict[str, Any]:
        """What differs from the start, by ``app.table``: rows ``added`` and ``changed``, ids ``removed``."""
        found = {}
        for app in self._apps():
            for table in sorted(self._touched(app)):
                change = self._difference(app, table)
                if change:
                    found[f"{app}.{table}"] = change
        return found

    def references(self) -> dict[str, dict[str, str]]:
        """Which columns hold ids of which tables: ``{"app.table": {column: "app.table"}}``."""
        found: dict[str, dict[str, str]] = {}
        for app in self._apps():
            connection = self._database(app)[0]
            for (table,) in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            ).fetchall():
                keys = connection.execute(f'PRAGMA foreign_key_list("{table}")').fetchall()
                if keys:
                    found[f"{app}.{table}"] = {key[3]: f"{app}.{key[2]}" for key in keys}
        return found

    def answer(self) -> dict[str, Any]:
        """Whether the task was completed and with which answer, as AppWorld compares answers."""
        from appworld.common.utils import answer_to_text

        task = self._world.requester.request("supervisor", "show_active_task", track=False)
        given = task["answer"]
        return {"status": task["status"], "answer": answer_to_text(given), "given": given}

    def evaluate(self) -> dict[str, Any]:
        """AppWorld's own judgement of the task that the world was opened for."""
        from appworld.environment import AppWorld
        from appworld.evaluator import evaluate_task

        AppWorld._save_state(self._world, self._world.output_db_home_path_on_disk)
        tracker = evaluate_task(
            task_id=self._world.task_id, experiment_name=self._world.experiment_name, save_report=False
        )
        self._world.models.reset_db_home_path()  # it leaves the start's databases in place
        return {
            "success": tracker.success,
            "passes": [one["requirement"] for one in tracker.passes],
            "failures": [one["requirement"] for one in tracker.failures],
            "tests": tracker.num_tests,
        }

    def _completed(self) -> bool:
        statuses = self._database("supervisor")[0].execute("SELECT status FROM tasks").fetchall()
        return any(status in ("success", "fail") for (status,) in statuses)

    def _apps(self) -> list[str]:
        return sorted({*self._world.task.allowed_apps, "admin", "supervisor"})

    def _database(self, app: str) -> tuple[sqlite3.Connection, Any]:
        """The live database of one app: its connection and the list of statements that changed it."""
        from appworld.apps.model_lib import CachedDBHandler, db_home_to_app_path

        engine, tracker = CachedDBHandler.cache[
            db_home_to_app_path(self._world.output_db_home_path_in_memory, app)
        ]
        connection: sqlite3.Connection = engine.raw_connection().connection
        return connection, tracker

    def _touched(self, app: str) -> set[str]:
        statements = self._database(app)[1].changes[self._marks[app] :]
        found = {match[1] for statement, *_ in statements if (match := _CHANGE.match(statement))}
        return {table for table in found if "_fts" not in table and not table.startswith("sqlite_")}

    def _start(self, app: str) -> sqlite3.Connection:
        """The app's database as it was when the world was opened."""
        if app not in self._starts:
            from appworld.apps.model_lib import apply_db_changes

            home = Path(self._world.task.models_from_db_home_path)
            full, changes = home / f"{app}.db", home / f"{app}.jsonl"
            base = full if full.exists() else home.parents[2] / "base_dbs" / f"{app}.db"
            self._starts[app] = sqlite3.connect(":memory:")
            source = sqlite3.connect(f"file:{base}?mode=ro", uri=True)
            source.backup(self._starts[app])
            source.close()
            if not full.exists():
                apply_db_changes(self._starts[app], str(changes))
        return self._starts[app]

    def _difference(self, app: str, table: str) -> dict[str, Any]:
        before, after = _rows(self._start(app), table), _rows(self._database(app)[0], table)
        change = {
            "added": {key: row for key, row in after.items() if key not in before},
            "changed": {key: row for key, row in after.items() if key in before and before[key] != row},
            "removed": sorted(key for key in before if key not in after),
        }
        return {kind: rows for kind, rows in change.items() if rows}


def _rows(connection: sqlite3.Connection, table: str) -> dict[str, dict[str, Any]]:
    cursor = connection.execute(f'SELECT * FROM "{table}"')
    names = [column[0] for column in cursor.description]
    rows = (dict(zip(names, values)) for values in cursor.fetchall())
    return {
        str(row["id"]): {
            name: value.hex() if isinstance(value, bytes) else value
            for name, value in row.items()
            if name not in _DERIVED
        }
        for row in rows
    }


def warm(task: str, host: Host) -> None:
    """Load a world and run something, then forget it: what was slow is in memory now."""
    from appworld.apps.model_lib import get_direct_cached_sqlite3_connection
    from appworld.environment import AppWorld

    from appworld import requester

    # Every world builds the same application out of the same apps: one is enough.
    requester.build_main_app = functools.cache(requester.build_main_app)

    host.open(task, True)
    host.execute("print(apis.supervisor.show_account_passwords())")
    host.changes()
    with suppress(Exception):  # a task may have no ground truth
        host.evaluate()
    host._world.close()
    AppWorld.close_all()
    host._world, host._starts = None, {}
    get_direct_cached_sqlite3_connection.cache_clear()
    gc.collect()
    if threading.active_count() > 1:
        raise RuntimeError(f"threads are left: {threading.enumerate()}")
    gc.freeze()  # what is shared by all worlds is not written to by their garbage collectors
