"""What the benchmarks share: CPU seconds, and results as a table, as JSON and as a picture."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of this process, and what the work gave."""
    began = time.process_time()
    found = work()
    return time.process_time() - began, found


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown; numbers to three digits, nothing where there is nothing."""
    names = list(dict.fromkeys(name for row in rows for name in row))

    def cell(value: Any) -> str:
        return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(cell(row.get(name)) for name in names) + " |" for row in rows])


def write(
    name: str,
    title: str,
    rows: list[dict[str, Any]],
    notes: list[str],
    draw: Callable[[Any], None],
    quick: bool,
) -> None:
    """Print the table; unless this was a quick run, write JSON, Markdown and PNG under ``results``."""
    import numpy as np
    import scipy

    import taskloom

    text = table(rows) + "\n\n" + "\n".join(f"- {note}" for note in notes)
    print(text)
    if quick:
        return
    versions = {"taskloom": taskloom.__version__, "numpy": np.__version__, "scipy": scipy.__version__}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    command = "python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    load = f"Load of the machine at the end: {os.getloadavg()[0]:.1f}; CPU seconds of the process, never wall seconds."
    RESULTS.mkdir(exist_ok=True)
    record = {"command": command, "machine": machine, "versions": versions, "rows": rows, "notes": notes}
    (RESULTS / f"{name}.json").write_text(json.dumps(record, indent=1))
    (RESULTS / f"{name}.md").write_text(f"# {title}\n\n`{command}` on {machine}. {load}\n\n{text}\n")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = pyplot.figure(figsize=(9, 4), layout="constrained")
    draw(figure)
    figure.savefig(RESULTS / f"{name}.png", dpi=110)
