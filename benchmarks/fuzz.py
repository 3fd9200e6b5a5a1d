"""Fuzz the files that taskloom reads: model files (structured mutations of real ones) and tables (through the commands).

    python benchmarks/fuzz.py --mutations 100000 --seed 0

Every file must be used, or refused in one sentence: no other exception, nothing of it runs (pickles in it carry a canary), no
memory blow-up (the process may grow by 2 GiB of address space), at most ten CPU seconds a case, and of the output the old file
or the whole new one. Case ``k`` of a seed is always the same; ``--only model:17`` shows one. Files that fail are written to
``--failures``, for a test. Writes benchmarks/results/fuzz.json and fuzz.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from attack import fuzzing

from taskloom.model_file import atomic_write

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=100_000, help="model files")
    parser.add_argument("--tables", type=int, help="tables; default: a tenth of the mutations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="WHAT:K", help="one case, such as model:17 or table:3")
    parser.add_argument("--failures", type=Path, default=HERE / "results" / "fuzz-failures", help="where files that fail go")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    began = time.process_time()
    with tempfile.TemporaryDirectory() as name:
        fuzzer = fuzzing.Fuzzer(Path(name), asked.seed, asked.failures)
        if asked.only:
            what, k = asked.only.split(":")
            print(fuzzer.one(what, int(k)))
            return 0
        before = fuzzing.peak()
        fuzzing.limit_memory()
        models = fuzzer.models(asked.mutations)
        grown = fuzzing.peak() - before
        tables = fuzzer.tables(asked.mutations // 10 if asked.tables is None else asked.tables)
        large = fuzzer.large()
    facts = {
        "command": f"python benchmarks/fuzz.py --mutations {asked.mutations} --seed {asked.seed}",
        "CPU seconds": round(time.process_time() - began),
        "memory that the model files added (MiB)": round(grown),
        "peak memory (MiB)": round(fuzzing.peak()),
        "model files": models.rows(),
        "tables": tables.rows(),
        "large tables": large.rows(),
        "failures": models.failures + tables.failures + large.failures,
    }
    text = as_markdown(facts)
    print(text)
    asked.results.mkdir(parents=True, exist_ok=True)
    atomic_write(asked.results / "fuzz.json", (json.dumps(facts, indent=1) + "\n").encode())
    atomic_write(asked.results / "fuzz.md", text.encode())
    return int(bool(facts["failures"]))


def as_markdown(facts: dict) -> str:
    lines = [
        "# Files under attack",
        "",
        f"`{facts['command']}`: {facts['CPU seconds']} CPU seconds. The model files added "
        f"{facts['memory that the model files added (MiB)']} MiB to the memory of the process; its peak, "
        f"with large tables, was {facts['peak memory (MiB)']} MiB.",
    ]
    for title in ("model files", "tables", "large tables"):
        rows = facts[title]
        lines += ["", f"## {title.capitalize()}", "", f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
        lines += [f"| {' | '.join(map(str, row.values()))} |" for row in rows]
    lines += ["", f"{len(facts['failures'])} failures."]
    lines += [
        f"- {failure['kind']} {failure['case']}: {failure['outcome']} {failure['detail']}" for failure in facts["failures"]
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
