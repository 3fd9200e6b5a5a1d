"""Kill the commands at random moments (SIGKILL), and look at what is on disk.

    python benchmarks/interruptions.py --kills 200 --seed 0

``fit --save``, ``predict -o``, ``reproduce fig1 --quick``, the machinery of ``reproduce`` with two workers on
units that do nothing, and ``benchmarks/campaign.py``. After every
kill what was there before is there, or the whole new file; there is at most one temporary file for each target; and no worker
outlives its parent for long. At the end every command runs through, from what the kills left. Writes
benchmarks/results/interruptions.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import taskloom
import taskloom.cli.gains_table
import taskloom.cli.table_files
import taskloom.report
from taskloom import cli
from taskloom.persistence import atomic_write

HERE = Path(__file__).parent
TOKEN = f"TASKLOOM_KILLED={secrets.token_hex(8)}"
SLOW = """
import sys
from attack import slow_experiment
from taskloom.experiments import EXPERIMENTS, reproduce
EXPERIMENTS["slow"] = slow_experiment
reproduce("slow", output=sys.argv[1], n_jobs=2, verbose=False)
"""
PATIENCE = 10.0  # seconds that workers of a dead parent may stay


@dataclass
class Command:
    """How to start it, what it writes, and when that is whole."""

    start: Callable[[], int]  # the process id
    targets: dict[Path, Callable[[Path], bool]]
    share: float  # of the kills
    seconds: float = 0.0
    workers: bool = False
    found: dict[str, int] = field(default_factory=lambda: defaultdict(int))


def forked(argv: list[str]) -> Callable[[], int]:
    """The command in a child of this process: everything is imported already, so a kill hits the work itself."""

    def start() -> int:
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            os._exit(cli.run(argv))
        return child

    return start


def started(argv: list[str]) -> Callable[[], int]:
    """The command as a program of its own, with a mark by which its workers are found."""
    name, value = TOKEN.split("=")
    source = str(Path(taskloom.__file__).parents[1])
    path = os.pathsep.join([source, str(HERE)])
    env = {**os.environ, name: value, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return lambda: subprocess.Popen([sys.executable, *argv], env=env, **quiet).pid


def marked() -> list[int]:
    """Living processes that a command of ours started."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if TOKEN.encode() in (entry / "environ").read_bytes() and state != "Z":
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def ended(process: int) -> int:
    """Wait for a process; its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def commands(folder: Path) -> dict[str, Command]:
    rng = np.random.default_rng(0)
    lines = [f"r{i},{x:.4f},{z:.4f},{'abc'[i % 3]},{x + z:.4f}" for i, (x, z) in enumerate(rng.normal(size=(60, 2)))]
    table, many, model = folder / "t.csv", folder / "many.csv", folder / "model"
    table.write_text("\n".join(["id,p,q,shop,y", *lines]) + "\n")
    many.write_text("\n".join(["id,p,q,shop,y", *lines * 20]) + "\n")
    fit = ["fit", str(table), "--target", "y", "--task", "shop", "--drop", "id", "--alphas", "2", "--cv", "2", "-q"]
    cli.run([*fit, "--save", str(model)])
    saved, page, out = folder / "saved" / "m", folder / "saved" / "r.html", folder / "predicted" / "o.csv"
    figure, slow, ledger, tables = folder / "fig1", folder / "slow", folder / "campaign" / "ledger.jsonl", folder / "campaign"
    for path in (saved, page, out, ledger):
        path.parent.mkdir(exist_ok=True)
    campaign = [str(HERE / "campaign.py"), "--instances", "12", "--jobs", "2", "--limit", "2", "--ledger", str(ledger)]
    return {
        "fit --save --report": Command(
            forked([*fit, "--save", str(saved), "--report", str(page)]), {saved: is_model, page: is_page}, share=0.35
        ),
        "predict -o": Command(
            forked(["predict", str(model), str(many), "-o", str(out), "--rows", "10", "-q"]),
            {out: lambda p: is_table(p, 1201)},
            share=0.35,
        ),
        "reproduce fig1 --quick": Command(
            started(["-m", "taskloom", "reproduce", "fig1", "--quick", "--output", str(figure)]),
            {figure / "fig1.results.json": is_json, figure / "fig1.json": is_json, figure / "fig1.png": is_png},
            share=0.1,
            workers=True,
        ),
        "reproduce, two workers": Command(
            started(["-c", SLOW, str(slow)]),
            {slow / "slow.results.json": is_json, slow / "slow.json": is_json, slow / "slow.png": is_png},
            share=0.1,
            workers=True,
        ),
        "campaign.py, two workers": Command(
            started([*campaign, "--results", str(tables)]),
            {ledger: is_ledger, tables / "campaign.json": is_json},
            share=0.1,
            workers=True,
        ),
    }


def is_model(path: Path) -> bool:
    return bool(taskloom.load(path))


def is_page(path: Path) -> bool:
    return path.read_text().rstrip().endswith("</html>")


def is_table(path: Path, lines: int) -> bool:
    text = path.read_text()
    return text.endswith("\n") and text.count("\n") == lines


def is_json(path: Path) -> bool:
    return bool(json.loads(path.read_text()))


def is_png(path: Path) -> bool:
    return path.read_bytes().endswith(b"IEND\xaeB`\x82")


def is_ledger(path: Path) -> bool:
    """Every line whole but the last, which a reader skips."""
    return all(json.loads(line) for line in path.read_text().split("\n")[:-1])


def attack(command: Command, kills: int, rng: np.random.Generator) -> list[str]:
    """Kill it so often; what went wrong."""
    began = time.perf_counter()
    wrong = [f"exit code {code} without a kill"] if (code := ended(command.start())) else []
    command.seconds = time.perf_counter() - began
    for _ in range(kills):
        before = {path: path.read_bytes() if path.exists() else None for path in command.targets}
        if rng.random() < 0.5:  # half of them from nothing
            for path in command.targets:
                path.unlink(missing_ok=True)
            before = dict.fromkeys(command.targets)
        process = command.start()
        time.sleep(float(rng.uniform(0, command.seconds)))
        os.kill(process, signal.SIGKILL)
        killed = ended(process) == -signal.SIGKILL
        command.found["killed" if killed else "had ended"] += 1
        if command.workers:
            wrong += wait_for_workers(command)
        for path, whole in command.targets.items():
            wrong += look_at(command, path, before[path], whole)
    if code := ended(command.start()):
        wrong.append(f"exit code {code} after the kills")
    for path, whole in command.targets.items():
        if not path.exists() or not whole(path):
            wrong.append(f"{path.name} is not whole after the last run")
        wrong += [f"{left.name} is left after the last run" for left in temporaries(path)]
    return wrong


def wait_for_workers(command: Command) -> list[str]:
    began = time.perf_counter()
    if marked():
        command.found["left workers for a moment"] += 1
    while (left := marked()) and time.perf_counter() - began < PATIENCE:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    return [f"{len(left)} workers after {PATIENCE:g} seconds"] if left else []


def look_at(command: Command, path: Path, before: bytes | None, whole: Callable[[Path], bool]) -> list[str]:
    left = temporaries(path)
    command.found["left a temporary file"] += len(left) > 0
    wrong = [f"{len(left)} temporary files of {path.name}"] if len(left) > 1 else []
    if not path.exists():
        return wrong + ([f"{path.name} is gone"] if before is not None else [])
    if path.read_bytes() == before:
        command.found["old file"] += 1
        return wrong
    command.found["new file"] += 1
    try:
        return wrong + ([] if whole(path) else [f"{path.name} is not whole"])
    except ValueError as error:
        return [*wrong, f"{path.name} is not whole: {error}"]


def temporaries(path: Path) -> list[Path]:
    return [entry for entry in path.parent.glob(".*") if entry.name.startswith(f".{path.name}.")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    rows, wrong = [], []
    with tempfile.TemporaryDirectory() as name:
        for what, command in commands(Path(name)).items():
            failures = attack(command, round(asked.kills * command.share), rng)
            counts = ("killed", "had ended", "old file", "new file", "left a temporary file", "left workers for a moment")
            rows.append({"command": what, **{k: command.found[k] for k in counts}, "failures": len(failures)})
            wrong += [f"{what}: {failure}" for failure in failures]
            print(rows[-1], flush=True)
    line = f"python benchmarks/interruptions.py --kills {asked.kills} --seed {asked.seed}"
    text = [f"# Commands killed at random moments\n\n`{line}`\n", f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
    text += [f"| {' | '.join(map(str, row.values()))} |" for row in rows]
    text += ["", f"{len(wrong)} failures.", *(f"- {failure}" for failure in wrong)]
    print("\n".join(text))
    asked.results.mkdir(parents=True, exist_ok=True)
    record = {"command": line, "rows": rows, "failures": wrong}
    atomic_write(asked.results / "interruptions.json", (json.dumps(record, indent=1) + "\n").encode())
    atomic_write(asked.results / "interruptions.md", ("\n".join(text) + "\n").encode())
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
