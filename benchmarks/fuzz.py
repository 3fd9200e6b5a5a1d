"""Fuzz the files that taskloom reads: model files (structured mutations of real ones, and ones that ask for far more work or
memory than their size) and tables (through the commands).

    python benchmarks/fuzz.py --mutations 100000 --seed 0

Every file must be used, or refused in one sentence: no other exception, nothing of it runs (pickles in it carry a canary), no
memory blow-up (the process may grow by 2 GiB of address space), at most ten CPU seconds a case, and of the output the old file
or the whole new one. Heavy model files and hostile tables are judged in a process each: loading may take three CPU seconds and
a gibibyte. Case ``k`` of a seed is always the same; ``--only model:17`` or ``heavy:3`` shows one. Files that fail go to
``--failures``, for a test. Writes benchmarks/results/fuzz.json and fuzz.md as it goes; the same command goes on where a run was
stopped, ``--anew`` does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from attack import fuzzing, table_files

from taskloom.persistence import atomic_write

HERE = Path(__file__).parent
EVERY = 1000  # cases between two writes of the results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=100_000, help="model files")
    parser.add_argument("--tables", type=int, help="tables; default: a twentieth of the mutations")
    parser.add_argument("--heavy", type=int, help="heavy model files; default: a fiftieth; a twentieth as many tables")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", metavar="WHAT:K", help="one case, such as model:17, heavy:2 or table:3")
    parser.add_argument("--anew", action="store_true", help="do not go on from the results that are there")
    parser.add_argument("--failures", type=Path, default=HERE / "results" / "fuzz-failures", help="where files that fail go")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        fuzzer = fuzzing.Fuzzer(Path(name), asked.seed, asked.failures)
        if asked.only:
            what, k = asked.only.split(":")
            print(fuzzer.one(what, int(k)))
            return 0
        wanted = {
            "large tables": len(table_files.LARGE),
            "tables": asked.mutations // 20 if asked.tables is None else asked.tables,
            "heavy tables": asked.mutations // 1000 if asked.heavy is None else asked.heavy // 20,
            "model files": asked.mutations,
            "heavy model files": asked.mutations // 50 if asked.heavy is None else asked.heavy,
        }
        return run(fuzzer, wanted, asked)


def run(fuzzer: fuzzing.Fuzzer, wanted: dict[str, int], asked: argparse.Namespace) -> int:
    path = asked.results / "fuzz.json"
    kept = json.loads(path.read_text()) if path.exists() and not asked.anew else {}
    kept = kept if kept.get("seed") == asked.seed else {}
    tallies = {what: fuzzing.Tally(kept.get(what)) for what in wanted}
    spent, grown = kept.get("CPU seconds", 0.0), kept.get("MiB added", {})
    began = time.process_time()
    asked.results.mkdir(parents=True, exist_ok=True)

    def write() -> str:
        record: dict[str, Any] = {
            "command": " ".join(["python benchmarks/fuzz.py", *sys.argv[1:]]),
            "seed": asked.seed,
            "wanted": wanted,
            "CPU seconds": round(spent + time.process_time() - began, 1),
            "MiB added": grown,
            **{what: tally.as_json() for what, tally in tallies.items()},
        }
        text = as_markdown(record, tallies)
        atomic_write(path, (json.dumps(record, indent=1) + "\n").encode())
        atomic_write(asked.results / "fuzz.md", text.encode())
        return text

    # heavy ones first: each has limits of its own, and making it may take more; large ones last: they set the peak
    for what in ("heavy model files", "heavy tables", "model files", "tables", "large tables"):
        if what == "model files":
            fuzzing.limit_memory()
        before, tally = fuzzing.peak(), tallies[what]
        while tally.done < wanted[what]:
            fuzzer.judge_next(what, tally)
            grown[what] = max(grown.get(what, 0), round(fuzzing.peak() - before))
            if tally.done % EVERY == 0:
                write()
    print(write())
    return int(any(tally.failures for tally in tallies.values()))


def as_markdown(record: dict[str, Any], tallies: dict[str, fuzzing.Tally]) -> str:
    lines = ["# Files under attack", "", f"`{record['command']}`: {record['CPU seconds']} CPU seconds so far."]
    for what, tally in tallies.items():
        rows, most = tally.rows(), record["MiB added"].get(what, 0)
        lines += ["", f"## {what.capitalize()}", ""]
        apart = "each in a process of its own" if what.startswith("heavy") else f"the memory of the process grew by {most} MiB"
        lines += [f"{tally.done} of {record['wanted'][what]} cases; {apart}.", ""]
        lines += [f"| {' | '.join(rows[0])} |", "|---" * len(rows[0]) + "|"]
        lines += [f"| {' | '.join(map(str, row.values()))} |" for row in rows]
        lines += ["", f"{len(tally.failures)} failures."]
        lines += [f"- {bad['kind']} {bad['case']}: {bad['outcome']} {bad['detail']}" for bad in tally.failures]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
