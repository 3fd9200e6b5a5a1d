"""A campaign against our own library: random problems of every kind, each answer judged by independent code.

    python benchmarks/campaign.py --instances 10000 --seed 0 --jobs 2

Instance ``k`` of a seed is always the same. The ledger (``--ledger``) has a line for each instance that was judged; a run that
was killed goes on where it stopped. ``--only 17 --shrink`` runs one again, makes it small and writes it as a test under
tests/regressions. Seeds from 1000 on draw the second family (attack/kinds.py). ``--grow`` sends small problems the ways of
large ones (give it a ledger of its own). Writes benchmarks/results/campaign.json and campaign.md; docs/robustness.md says what
is attacked.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from attack import growing, ledger, shrink, summary
from attack.check import GOOD
from attack.kinds import draw

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=20.0, help="CPU seconds of one instance")
    parser.add_argument("--ledger", type=Path, default=HERE / "results" / "campaign.jsonl")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="where the tables go")
    parser.add_argument("--only", type=int, metavar="K", help="run one instance, whatever the ledger says")
    parser.add_argument("--shrink", action="store_true", help="with --only: make a failure small and write it as a test")
    parser.add_argument("--again", action="store_true", help="judge the failures of the ledger again")
    parser.add_argument("--grow", action="store_true", help="small problems grow a basis and factor kernels, as large ones do")
    asked = parser.parse_args()
    if asked.grow:
        os.environ[growing.ASKED] = "1"
    if asked.only is not None:
        return one(asked)
    if asked.again:
        for k, entry in ledger.read(asked.ledger, asked.seed).items():
            if entry["outcome"] not in GOOD:
                ledger.append(asked.ledger, ledger.judge(asked.seed, k, asked.limit))
    entries = ledger.run(asked.ledger, asked.seed, asked.instances, asked.jobs, asked.limit)
    print(summary.write(entries.values(), asked.results))
    return int(any(entry["outcome"] not in GOOD for entry in entries.values()))


def one(asked: argparse.Namespace) -> int:
    """A single instance, and what is left of it."""
    about = draw(asked.seed, asked.only)
    entry = ledger.judge(asked.seed, asked.only, asked.limit)
    print(json.dumps(about, indent=1))
    print(json.dumps(entry, indent=1))
    if entry["outcome"] in GOOD:
        return 0
    if asked.shrink:
        small = shrink.shrink(about, asked.limit)
        print(f"wrote {shrink.write_test(small, entry['outcome'], HERE.parent / 'tests' / 'regressions')}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
