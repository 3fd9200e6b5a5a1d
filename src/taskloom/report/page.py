"""The HTML page: a template, a style sheet, a script, and a Content-Security-Policy that allows only these."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import os
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from sklearn.utils.validation import check_is_fitted

from ..estimators.base import MultiTaskEstimator
from ..labels import clean_text
from ..persistence import atomic_write
from ..versions import versions
from . import figures, settings
from .facts import LARGEST_MAP, Facts, gather, payload
from .sentences import count, percent, prove_model, tell
from .term_tables import levels_of, term_tables


def write_report(
    model: Any,
    path: str | os.PathLike,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    transfer: Any = None,
    preprocessor: Any = None,
) -> Path:
    """Write one self-contained HTML page about a fitted model: task correlations, gains over single-task models, duality gap.

    The page loads nothing and opens from disk. It is written under a temporary name and renamed, so that a crash leaves no
    partial file.

    Parameters
    ----------
    model : fitted estimator
        A multi-task estimator of taskloom.
    path : str or path
        Where to write it, such as ``"report.html"``.
    X : array-like or data frame of shape (n_samples, n_features), default=None
        The inputs of the fit, for the summary of the data. Only counts, means and scores go into the page.
    y : array-like or data frame of shape (n_samples,) or (n_samples, n_tasks), default=None
        The targets of the fit.
    title : str, default=None
        The title of the page.
    transfer : dict, default=None
        The gain of each task, from :func:`~taskloom.compare_to_single_task`; ``None`` is ``transfer_`` of the model.
    preprocessor : transformer, default=None
        The transformer that made ``X`` from the table, such as ``TablePreprocessor``; it is part of the code on the page.

    Returns
    -------
    Path
        ``path``.
    """
    path = Path(path)
    html = render_report(model, X, y, title=title, transfer=transfer, preprocessor=preprocessor).encode("utf-8")
    atomic_write(path, html)
    return path


def render_report(
    model: Any, X: Any = None, y: Any = None, *, title: str | None = None, transfer: Any = None, preprocessor: Any = None
) -> str:
    """The page of :func:`write_report` as a string.

    Parameters
    ----------
    model : fitted estimator
        A multi-task estimator of taskloom.
    X, y, title, transfer, preprocessor
        As in :func:`write_report`.

    Returns
    -------
    str
        The HTML page.
    """
    try:
        import jinja2
        from markupsafe import Markup  # text of our own that is not escaped
    except ImportError:
        raise ImportError("a report needs Jinja2; install it with: pip install 'taskloom[report]'") from None
    if not isinstance(model, MultiTaskEstimator):
        raise ValueError(
            f"a report needs a fitted taskloom estimator, got {type(model).__name__}; of a pipeline, pass pipe[-1], and "
            "pipe[:-1].transform(X) as X"
        )
    check_is_fitted(model, "certificate_")
    if (X is None) != (y is None):
        raise ValueError("give both X and y, or neither")
    facts = gather(model, X, y, transfer)
    gains, span = figures.gains(facts)
    style, script = _text("page.css"), f'"use strict";\n(() => {{\n{_text("map.js")}\n{_text("page.js")}\n}})();\n'
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(_text("page.html")).render(
        title=clean_text(title) if title else f"{type(model).__name__}: {_subject(facts)}",
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        style=Markup(style),
        script=Markup(script),
        data=Markup(_harmless(payload(facts))),
        facts=facts,
        largest_map=LARGEST_MAP,
        proof=prove_model(model),
        tiles=_tiles(facts),
        paragraphs=tell(facts),
        term_tables=term_tables(facts.summary),
        strongest=figures.strongest(facts),
        groups=figures.groups(facts),
        gains=gains,
        gains_span=span,
        convergence=[(chart, Markup(chart.svg())) for chart in figures.convergence(facts)],
        path=[(chart, Markup(chart.svg())) for chart in figures.path(facts)],
        tasks=figures.tasks(facts),
        seconds=_seconds(model),
        code=settings.reproduce(facts, preprocessor),
        parameters=settings.parameters(model),
        versions=versions(),
        estimator=type(model).__name__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        percent=percent,
    )


def _subject(facts: Facts) -> str:
    if facts.only_terms and facts.summary is not None:
        return count(len(facts.summary.terms), "term")
    return f"{facts.n_tasks:,} {facts.noun}"


def _tiles(facts: Facts) -> list[tuple[str, str]]:
    """The numbers at the top: value and label."""
    summary = facts.summary
    tiles = [] if facts.only_terms else [(f"{facts.n_tasks:,}", facts.noun)]
    if summary is not None:
        tiles += [(f"{len(summary.terms)}", "terms" if len(summary.terms) > 1 else "term")]
        tiles += levels_of(summary) if facts.only_terms else []
    if facts.data is not None:
        tiles.append((f"{facts.data.n_observations:,}", "observations"))
    n = sum(len(members) > 1 for members in facts.clusters.values())
    if n and facts.related and not facts.vanished:
        tiles.append((f"{n:,}", f"{'cluster' if n == 1 else 'clusters'} of {facts.noun}"))
    if facts.by_task:
        tiles.append((f"{int(facts.gains.better.sum()):,}", "clearly better with multi-task"))  # type: ignore[union-attr]
    gap = facts.model.certificate_.relative_gap
    tiles.append((percent(gap) if 0 <= gap < float("inf") else "unknown", "duality gap"))
    return tiles


def _seconds(model: Any) -> str:
    history = getattr(model, "history_", None)
    if history is None or len(history["seconds"]) == 0:
        return ""
    return f"{count(int(model.n_iter_), 'iteration')} in {float(history['seconds'][-1]):.2g} seconds"


# --- escaping -------------------------------------------------------------------------------------------------------


def _harmless(data: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@cache
def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
