"""What ``SECURITY.md`` says of the source, asked of the source: no text becomes code (invariant 6)."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "src").rglob("*.py"))
EVALUATORS = {"eval", "exec", "compile", "__import__"}
PICKLES = {"worker_pipe.py", "worker_process.py", "backends.py"}
"""Between a run and the workers that it has started, and of BFCL's own default values."""


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src" / "coevolve")))
def test_no_module_evaluates_text_or_asks_a_shell(module: Path) -> None:
    for name, call in calls(ast.parse(module.read_text())):
        assert name not in EVALUATORS, name
        assert name not in {"os.system", "os.popen", "yaml.load", "torch.load", "marshal.loads"}, name
        assert not any(keyword.arg == "shell" for keyword in call.keywords), name
        assert not any(keyword.arg == "trust_remote_code" for keyword in call.keywords), name
        assert not re.match(r"(pickle|cloudpickle|dill)\.loads?$", name) or module.name in PICKLES, name


def test_the_page_names_what_is_there() -> None:
    page = (ROOT / "SECURITY.md").read_text()
    for link in re.findall(r"\]\(([^)]+)\)", page):
        assert (ROOT / link).exists(), link
    for key in ("verify.safety", "llm.key", "train.extra"):
        name = key.rpartition(".")[2]
        assert re.search(rf"\b{name}:", (ROOT / "src" / "coevolve" / "config.py").read_text()), key
