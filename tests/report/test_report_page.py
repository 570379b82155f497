"""Promises of ``coevolve report``: one file that holds everything, of any run, and stays one file."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from grown_run import EVIL, INITIAL, grown_run, hostile
from typer.testing import CliRunner

from coevolve.cli import app
from coevolve.errors import RunError
from coevolve.pool import Pool
from coevolve.report.packing import pack, unpack
from coevolve.report.page import write_report

_DATA = re.compile(r'<script type="text/plain" id="data-([a-z0-9-]+)">([^<]*)</script>')


def parts(page: str) -> dict[str, str]:
    """What is packed in a page, by name."""
    return dict(_DATA.findall(page))


def written(tmp_path: Path, *runs: Path) -> str:
    return write_report(runs, tmp_path / "report.html").read_text()


@pytest.fixture(scope="module")
def page(grown: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("page"), grown)


def test_the_command_says_where_the_report_lies(grown: Path, tmp_path: Path) -> None:
    run = shutil.copytree(grown, tmp_path / "mine")
    done = CliRunner().invoke(app, ["report", str(run)])
    assert done.exit_code == 0 and done.stdout.strip() == str(run / "report.html")
    assert (run / "report.html").read_text().startswith("<!doctype html>")


def test_the_file_asks_for_nothing_outside_of_itself(page: str) -> None:
    shell = _DATA.sub("", page)
    assert not re.search(r"""(?:src|href|action)\s*=\s*["']?(?!#|data:)\w""", shell)
    assert "url(" not in shell and "@import" not in shell and "default-src 'none'" in shell
    bundles = [name for name, text in parts(page).items() if "Plotly, Inc" in str(unpack(text))[:400]]
    assert bundles == ["plotly"]


def test_it_tells_the_story_in_a_paragraph_and_five_figures(page: str, grown: Path) -> None:
    with Pool.read_only(grown / "pool.db") as pool:
        size = len(pool)
    assert f"The pool grew from {INITIAL} to {size} tasks in 3 evolutions" in page
    assert page.count('<div class="tile">') == 5
    summary = json.loads((grown / "summary.json").read_text())["heldout"]
    assert f"went from {summary['before']:.1%} to {summary['after']:.1%}" in page


def test_every_figure_of_a_grown_run_is_there(page: str) -> None:
    figures = unpack(parts(page)["figures"])
    assert set(figures) == {
        "success", "pool", "signals", "refused", "origins", "lengths", "similarity", "time",
    }  # fmt: skip
    assert all(f'id="figure-{name}"' in page for name in figures)


def test_the_pool_figure_adds_up(page: str, grown: Path) -> None:
    traces = unpack(parts(page)["figures"])["pool"]["data"]
    with Pool.read_only(grown / "pool.db") as pool:
        assert {trace["name"]: trace["y"][-1] for trace in traces} == pool.admitted()


def test_every_candidate_is_in_the_lineage_with_its_verdict(page: str, grown: Path) -> None:
    data = parts(page)
    tasks = unpack(data["index"])["tasks"]
    with Pool.read_only(grown / "pool.db") as pool:
        judged = list(pool.judgements())
    assert tasks["id"] == [one.candidate.task.id for one in judged]
    assert tasks["reason"] == ["" if one.verdict.admitted else one.verdict.reason for one in judged]
    details = unpack(data["tasks-0"])
    for one, shown in zip(judged, details["tasks"]):
        assert shown["turns"] == list(one.candidate.task.turns)
        assert shown["evidence"] == one.verdict.evidence
        explored = details["explorations"][shown["exploration"]]
        assert [t["action"]["name"] for t in explored] == [t.action.name for t in one.candidate.triplets]


def test_a_task_leads_to_its_signal_its_failed_rollouts_and_its_parent(page: str, grown: Path) -> None:
    data = parts(page)
    index, rollouts = unpack(data["index"]), unpack(data["rollouts-0"])
    tasks, signals = index["tasks"], index["signals"]
    made = [n for n, signal in enumerate(tasks["signal"]) if signal >= 0]
    assert made
    with Pool.read_only(grown / "pool.db") as pool:
        for n in made:
            number = tasks["signal"][n]
            signal = pool.signal(signals["id"][number])
            assert tasks["parents"][n] == [signals["task"][number]]
            assert tasks["id"][signals["task"][number]] == signal.task.id
            shown = [rollouts[index["rollouts"].index(row)] for row in signals["failed"][number]]
            assert shown and {one["task"] for one in shown} == {signal.task.id}
            assert [one["outcome"] for one in shown] == ["failed"] * len(signal.failed)
            assert "tokens" not in shown[0]


def test_attempts_are_told_by_task_and_step(page: str, grown: Path) -> None:
    rows = unpack(parts(page)["index"])["attempts"]
    with Pool.read_only(grown / "pool.db") as pool:
        outcomes = pool.outcomes()
    assert [sum(row[n] for row in rows) for n in (2, 3, 4)] == [
        outcomes["solved"], outcomes["failed"], outcomes["invalid"],
    ]  # fmt: skip
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


def test_what_environments_and_models_wrote_stays_text(grown: Path, tmp_path: Path) -> None:
    run, task, _ = hostile(tmp_path / "<b>run", grown)
    page = written(tmp_path, run)
    assert "<script>document.title" not in page and "<img" not in page and "<b>run" not in page
    assert "&lt;script&gt;document.title" in page  # the model's name, in the story's head
    data = parts(page)
    index = unpack(data["index"])
    assert EVIL in index["tasks"]["text"] and task in index["tasks"]["id"]
    names = json.dumps(unpack(data["figures"]))
    assert "<script>" not in names and "&lt;script&gt;" in names  # Plotly reads some HTML in names
    assert page.count("</script>") == page.count("<script")


@pytest.mark.parametrize(
    "value", ["</script>", "<!--<script>", "\ud800 half", "\u2028", {"a": [None, 1.5, "é"]}]
)
def test_packing_keeps_values_and_shows_the_parser_letters_only(value: Any) -> None:
    packed = pack(value)
    assert re.fullmatch(r"[A-Za-z0-9+/=]+", packed)
    half = isinstance(value, str) and "\ud800" in value
    assert unpack(packed) == value or (half and unpack(packed).endswith(" half"))


def test_a_run_under_way_has_a_report_of_what_there_is(tmp_path: Path) -> None:
    run = grown_run(tmp_path / "run", finished=False)
    with (run / "metrics.jsonl").open("a") as log:
        log.write('{"step": 7, "sol')  # being written at this moment
    page = written(tmp_path, run)
    assert "so far: step 6" in page and "before training" in page


def test_a_run_that_has_just_begun_has_a_report(tmp_path: Path) -> None:
    Pool.open(tmp_path / "pool.db").close()
    page = written(tmp_path, tmp_path)
    assert unpack(parts(page)["figures"]) == {} and "0 to 0 tasks" in page


def test_an_older_pool_is_read_and_left_as_it_is(grown: Path, tmp_path: Path) -> None:
    run = shutil.copytree(grown, tmp_path / "old")
    (run / "pool.db.sha256").unlink()  # layouts that old knew no seal
    db = sqlite3.connect(run / "pool.db", isolation_level=None)
    db.executescript("ALTER TABLE tasks DROP COLUMN last; PRAGMA user_version=1; PRAGMA journal_mode=DELETE;")
    db.close()
    before = (run / "pool.db").read_bytes()
    assert len(unpack(parts(written(tmp_path, run))["index"])["tasks"]["id"]) > INITIAL
    assert (run / "pool.db").read_bytes() == before


def test_what_is_no_run_is_named(tmp_path: Path, grown: Path) -> None:
    with pytest.raises(RunError, match="neither a run nor an experiment"):
        write_report([tmp_path])
    with pytest.raises(RunError, match="cannot write"):
        write_report([grown], tmp_path / "nowhere" / "report.html")
