"""The front door tells the truth: the data side, as the README shows it, runs as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_data_side_runs_as_shown_and_without_torch(tmp_path: Path) -> None:
    block = re.search(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    # Without a trainer there are no groups to hand back.
    lines = [line for line in block[1].splitlines() if not line.startswith("loop.observe")]
    program = "\n".join([*lines, "import sys", "print(len(tasks), 'torch' in sys.modules)"])
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["32", "False"], done.stderr
    assert (tmp_path / "pool.db").exists()
