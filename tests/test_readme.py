"""What the README shows runs."""

import re
from pathlib import Path

from taskloom.datasets import load_shops

README = Path(__file__).parent.parent / "README.md"


def test_the_example_runs_as_pasted(capsys):
    code = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert len(code) == 1
    exec(compile(code[0], "README.md", "exec"), {})
    assert "Optimal" in capsys.readouterr().out


def test_the_first_two_commands_are_one_line_each():
    blocks = re.findall(r"```bash\n(.*?)```", README.read_text(), flags=re.DOTALL)
    assert [block.count("\n") for block in blocks[:2]] == [1, 1]
    assert all(block.startswith("python -m pip install") for block in blocks[:2])


def test_the_shops_are_the_same_each_time():
    assert (load_shops().y == load_shops().y).all()
    assert load_shops().X.shape == (660, 6)
