"""What was learned, in plain words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from ..inspection.labels import clean_text, shorten
from ..problem.solution import Certificate
from .facts import Facts

CLEAR = 2.0  # a gain is clear when it is this many standard errors from 0


@dataclass(frozen=True)
class Proof:
    """The certificate for people: a headline, how good the news is, and what it means."""

    headline: str
    tone: str
    meaning: str


def percent(share: float) -> str:
    """A share as a percentage of two digits, rounded up (what is proved within it is true), never in scientific notation."""
    if share <= 0:
        return "0 %"
    digits = Decimal(f"{100 * max(share, 1e-8):.8e}")
    return f"{digits.quantize(Decimal(1).scaleb(digits.adjusted() - 1), ROUND_CEILING).normalize():f} %"


def count(n: int, what: str) -> str:
    """``3,000 observations``, ``1 task``."""
    return f"{n:,} {what if n == 1 else what + 's'}"


def quoted(name: str) -> str:
    """A task's name in a sentence: not too long, and kept from turning the direction of the text around it."""
    return f"“\u2068{shorten(name, 48)}\u2069”"


def minus(text: str) -> str:
    """With a real minus sign."""
    return text.replace("-", "\u2212")


def signed(value: float) -> str:
    return minus(f"{value:+.2f}")


# --- the certificate ------------------------------------------------------------------------------------------------


def prove(certificate: Certificate, tol: float, baseline: str = "the best constant prediction") -> Proof:
    """What the certificate proves; also where it proves little, or nothing. ``baseline`` is what gaps are measured by."""
    gap = float(certificate.relative_gap)
    if not np.isfinite(gap):
        return Proof(
            "No proof of optimality: at best a stationary point",
            "none",
            "Nothing bounds how far this fit is from the best one: another start, or another solver, may end lower. Read the "
            f"structure as one plausible answer. The fit itself says: {_sentence(certificate.message)}",
        )
    means = (
        f"No other weights and no other structure can lower the objective by more than {percent(gap)} of what {baseline} "
        f"loses. The proof is the dual value, {certificate.dual:.6g}: nothing can fall below it, and this "
        f"fit, at {certificate.primal:.6g}, is that close to it."
    )
    if gap <= 0:
        means = "No other weights and no other structure have a lower objective, up to the rounding of the computer."
    if certificate.optimal:
        exact = "The optimum is proved, up to rounding" if gap <= 0 else f"The optimum is proved to within {percent(gap)}"
        return Proof(exact, "good", f"{means} The fit was asked for {percent(tol)}.")
    return Proof(
        f"Stopped early: proved to within {percent(gap)}, asked for {percent(tol)}",
        "fair",
        f"{means} {_sentence(certificate.message)}",
    )


def _sentence(message: str) -> str:
    return message if message.endswith(".") else f"{message}."


def prove_model(model: Any) -> Proof:
    """The certificate of a fitted model, and what it does not cover."""
    proof = prove(model.certificate_, model.tol, "the best constant prediction" if model.fit_intercept else "predicting zero")
    if len(getattr(model, "fallback_tasks_", [])):
        return replace(
            proof, meaning=f"{proof.meaning} It speaks of the joint fit, before tasks fell back to their own models."
        )
    if len(getattr(model, "added_tasks_", [])):
        return replace(proof, meaning=f"{proof.meaning} It speaks of the last fit, without the tasks that were added since.")
    return proof


# --- what was learned -----------------------------------------------------------------------------------------------


def tell(facts: Facts) -> list[str]:
    """Paragraphs: what was fitted, how tasks relate, what stands out, who gains."""
    return [text for text in (_fit(facts), _relations(facts), _parts(facts), _gains(facts)) if text]


def _fit(facts: Facts) -> str:
    model, data = facts.model, facts.data
    T = facts.n_tasks
    what = f"The {T:,} classes of one target" if facts.one_target else "One task" if T == 1 else f"{T:,} tasks"
    text = f"{what} {'was' if T == 1 else 'were'} learned{'' if T == 1 else ' together'}"
    if data is not None:
        text += f" from {count(data.n_observations, 'observation')} with {count(data.n_inputs, 'input')}"
        few, many = int(data.counts.min()), int(data.counts.max())
        if not facts.one_target and T > 1:
            text += f", {few:,} for each task" if few == many else f", {few:,} to {many:,} for each task"
    structures = " and ".join(type(structure).__name__ for structure in facts.structures)
    text += f". The model: {_kernel(model)}, the {_loss(model)} loss, the structure {structures} at strength {facts.alpha:.3g}"
    if hasattr(model, "cv_results_"):
        tried = len(model.cv_results_["mean_test_score"])
        folds = "leaving out one row at a time" if facts.model.cv == "loo" else f"cross-validation in {model.n_splits_} folds"
        text += f", the best of {count(tried, 'setting')} by {folds}"
    return text + "."


def _kernel(model: Any) -> str:
    if isinstance(model.kernel, list | tuple):
        return f"the sum of {len(model.kernel)} kernels"
    name = model.kernel if isinstance(model.kernel, str) else type(model.kernel).__name__
    return f"a {name} kernel{f' by {model.coef_.shape[1]} features' if hasattr(model, 'feature_map_') else ''}"


def _loss(model: Any) -> str:
    if isinstance(model.loss, dict):
        return "own (one for each task)"
    return model.loss.replace("_", " ") if isinstance(model.loss, str) else type(model.loss).__name__


def _relations(facts: Facts) -> str:
    T, C = facts.n_tasks, facts.correlation
    if T == 1:
        return "With one task there are no relations to learn."
    if facts.vanished:
        return "At this strength everything vanished: every task predicts a constant. Lower alpha to learn more."
    given = all(structure.known for structure in facts.structures)
    if not np.any(np.abs(C - np.eye(T)) > 1e-6):
        return "No relation links any two tasks: each was learned on its own" + (", as asked." if given else ".")
    text = ["The relations were given, not learned."] if given else []
    text.append(_groups(facts))
    one, other = np.tril_indices(T, -1)
    value = C[one, other]
    best, worst = int(np.argmax(value)), int(np.argmin(value))
    if value[best] > 0:
        pair = f"{quoted(facts.names[other[best]])} and {quoted(facts.names[one[best]])}"
        text.append(f"Most alike are {pair} (correlation {signed(value[best])}).")
    if value[worst] < -0.1:
        pair = f"{quoted(facts.names[other[worst]])} and {quoted(facts.names[one[worst]])}"
        text.append(f"Most opposed are {pair} ({signed(value[worst])}).")
    needed = int(np.searchsorted(np.cumsum(facts.eigenvalues) / facts.eigenvalues.sum(), 0.95)) + 1
    if T > 2:
        text.append(
            f"{count(needed, 'pattern')} {'carries' if needed == 1 else 'carry'} 95 % of what the {T:,} {facts.noun} share."
        )
    return " ".join(text)


def _parts(facts: Facts) -> str:
    """Tasks that go their own way, and inputs that are left out, where the structure tells them."""
    model, text = facts.model, []
    strangers = set(getattr(model, "outlier_tasks_", np.array([])).tolist())
    if strangers:
        names = [quoted(name) for name, label in zip(facts.names, model.tasks_.tolist(), strict=True) if label in strangers]
        more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
        go = "goes its" if len(names) == 1 else "go their"
        text.append(f"{count(len(names), 'task')} {go} own way: {', '.join(names[:8])}{more}.")
    if hasattr(model, "feature_structure_") and hasattr(model, "coef_"):
        size = np.linalg.norm(model.coef_, axis=0)
        used = int((size > 1e-6 * max(float(size.max()), 1e-300)).sum())
        text.append(f"{used:,} of {count(size.size, 'input')} {'is' if used == 1 else 'are'} used{_inputs(model, size)}.")
    return " ".join(text)


def _inputs(model: Any, size: Any) -> str:
    """The inputs that matter most, where inputs have names."""
    names = [name for name in getattr(model, "feature_names_in_", []) if name != model.task_column]
    if len(names) != size.size or not size.any():
        return ""
    return ", most of all " + ", ".join(
        quoted(clean_text(names[j])) for j in np.argsort(-size, kind="stable")[:5] if size[j] > 0
    )


def _groups(facts: Facts) -> str:
    sizes = Counter(facts.groups.tolist())
    real = sorted(n for n in sizes.values() if n > 1)
    alone = len(sizes) - len(real)
    noun = facts.noun
    same = facts.groups[:, None] == facts.groups[None, :]
    off = ~np.eye(facts.n_tasks, dtype=bool)
    if len(sizes) == 1:
        return f"All {noun} belong together: they form one group."
    if not real:
        if np.ptp(facts.correlation[off]) < 0.1:
            return f"No groups stand out: any two {noun} correlate about {signed(facts.correlation[off].mean())}."
        return "No groups stand out."
    span = f"of {real[0]:,}" if real[0] == real[-1] else f"of {real[0]:,} to {real[-1]:,}"
    text = f"The {noun} fall into {count(len(real), 'group')} {span}"
    text += f"; {alone:,} {'stands' if alone == 1 else 'stand'} alone." if alone else "."
    if len(real) > 1:
        inside, across = facts.correlation[same & off].mean(), facts.correlation[~same].mean()
        text += f" Two {noun} of one group correlate {signed(inside)} on average, two of different groups {signed(across)}."
    return text


def _gains(facts: Facts) -> str:
    if facts.ledger is None:
        return ""
    gain, error = (np.asarray(facts.ledger[column], dtype=float) for column in ("gain", "standard_error"))
    alone, together = (np.asarray(facts.ledger[column], dtype=float) for column in ("alone", "together"))
    scored = np.flatnonzero(~np.isnan(gain))
    if scored.size == 0:
        return "No task could be scored by cross-validation, so nothing is known about gains."
    change = minus(f"the mean score goes from {alone[scored].mean():.3f} alone to {together[scored].mean():.3f} together")
    if not facts.by_task or scored.size == 1:
        return f"In cross-validation {change}."
    better, worse = verdicts(gain, error)
    mean, spread = float(gain[scored].mean()), float(gain[scored].std(ddof=1)) / scored.size**0.5
    clear = abs(mean) > CLEAR * spread
    verdict = ("helps" if mean > 0 else "hurts") if clear else "makes no clear difference on average"
    unsure = scored.size - int(better.sum()) - int(worse.sum())
    text = (
        f"Learning together {verdict}: of {count(scored.size, 'task')}, {int(better.sum()):,} "
        f"{'is' if better.sum() == 1 else 'are'} predicted clearly better than alone, {int(worse.sum()):,} clearly worse, and "
        f"for {unsure:,} the difference is within the noise; {change} (standard error over tasks {spread:.3f})."
    )
    top, low = scored[np.argmax(gain[scored])], scored[np.argmin(gain[scored])]
    if gain[top] > 0:
        text += f" {quoted(facts.names[top])} gains most ({signed(gain[top])})"
        text += f", {quoted(facts.names[low])} loses most ({signed(gain[low])})." if gain[low] < 0 else "."
    fallen = getattr(facts.model, "fallback_tasks_", [])
    if len(fallen):
        whose = "its" if len(fallen) == 1 else "their"
        text += f" {count(len(fallen), 'task')} that joint learning would hurt kept a model of {whose} own."
    return text


def verdicts(gain: Any, error: Any) -> tuple[Any, Any]:
    """Which tasks are clearly better off together, and which alone; without a standard error nothing is clear."""
    reach = np.where(np.isfinite(error), CLEAR * np.nan_to_num(error), np.inf)
    with np.errstate(invalid="ignore"):
        return gain - reach > 0, gain + reach < 0
