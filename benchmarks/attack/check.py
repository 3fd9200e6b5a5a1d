"""Fit an instance through the public estimators, and judge what comes back: the entry of the ledger."""

from __future__ import annotations

import time
import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from . import other_doors, problems, promises
from .draw import Description
from .fitting import GOOD, OPTIMAL, REFUSED, STOPPED, TOO_SLOW, TooSlow, WrongError, limited

__all__ = ["GOOD", "OPTIMAL", "REFUSED", "STOPPED", "TOO_SLOW", "check"]
JUDGES = {
    "far from zero": promises.judge_far,
    "constraints": promises.judge_constraints,
    "wrong component": promises.judge_wrong,
    "units": problems.judge,
    "search": other_doors.judge_search,
    "partial_fit": other_doors.judge_blocks,
    "fit_blocks": other_doors.judge_blocks,
    "add_task": other_doors.judge_new_task,
}


def check(about: Description, limit: float = 20.0) -> dict[str, Any]:
    """The entry of the ledger for one description: ``outcome`` is one of ``GOOD``, or ``FAILURE(kind)``."""
    began = time.process_time()
    entry: dict[str, Any] = {name: about[name] for name in ("k", "seed", "kind", "loss", "structure") if name in about}
    try:
        with limited(limit), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", message=".*Solution may be inaccurate.*")
            JUDGES.get(about.get("kind", ""), problems.judge)(about, entry)
    except TooSlow:
        if "outcome" in entry:  # the fit itself was judged; what went on was a comparison
            entry["unfinished"] = True
        else:
            entry |= {"outcome": TOO_SLOW, "detail": f"{limit:g} CPU seconds"}
    except WrongError as wrong:
        entry |= {"outcome": f"FAILURE({wrong.kind})", "detail": wrong.detail}
    if about.get("kind") == "units" and entry["outcome"] in (STOPPED, TOO_SLOW):  # these are plain problems: all must arrive
        entry["outcome"] = "FAILURE(short of its tolerance)"
    return entry | {"seconds": round(time.process_time() - began, 3)}
