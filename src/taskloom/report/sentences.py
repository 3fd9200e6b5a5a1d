"""The sentences of a report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Decimal
from typing import Any

import numpy as np

from ..estimators.terms.summary import Summary
from ..labels import clean_text, shorten
from ..problem.solution import Certificate
from .facts import CLEAR, Facts
from .term_tables import in_words


@dataclass(frozen=True)
class Proof:
    """The certificate in words: a headline, its CSS class, and an explanation."""

    headline: str
    tone: str
    meaning: str


def percent(share: float) -> str:
    """A share as a percentage with two digits, rounded up (it remains a bound), never in scientific notation."""
    if share <= 0:
        return "0 %"
    digits = Decimal(f"{100 * max(share, 1e-8):.8e}")
    return f"{digits.quantize(Decimal(1).scaleb(digits.adjusted() - 1), ROUND_CEILING).normalize():f} %"


def count(n: int, what: str) -> str:
    """``3,000 observations``, ``1 task``."""
    return f"{n:,} {what if n == 1 else what + 's'}"


def quoted(name: str) -> str:
    """A task's name in a sentence: shortened, and isolated (a right-to-left name must not turn the text around it)."""
    return f"“\u2068{shorten(name, 48)}\u2069”"


def minus(text: str) -> str:
    """Hyphens as minus signs."""
    return text.replace("-", "\u2212")


def signed(value: float) -> str:
    return minus(f"{value:+.2f}")


# --- the certificate ------------------------------------------------------------------------------------------------


def prove(certificate: Certificate, tol: float, baseline: str = "the intercept-only (null) model") -> Proof:
    """The certificate in words. ``baseline`` is the model whose loss scales the relative gap."""
    gap = float(certificate.relative_gap)
    said = certificate.message if certificate.message.endswith(".") else f"{certificate.message}."
    if not np.isfinite(gap):
        meaning = (
            "The problem is not convex, or the dual value is not finite, so the distance to the minimum is unknown: another "
            f"start or solver may reach a lower objective. {said}"
        )
        return Proof("No duality gap: at best a stationary point", "none", meaning)
    means = (
        f"The objective is {certificate.primal:.6g}; the dual value {certificate.dual:.6g} is a lower bound of the minimum. No "
        f"coefficients and no structure can lower the objective by more than the gap, {percent(gap)} of the loss of {baseline}."
    )
    if gap <= 0:
        means = "No coefficients and no structure have a lower objective, up to floating-point rounding."
    if certificate.optimal:
        exact = "Converged: duality gap 0, up to rounding" if gap <= 0 else f"Converged: duality gap {percent(gap)}"
        return Proof(exact, "good", f"{means} The tolerance is {percent(tol)}.")
    return Proof(f"Not converged: duality gap {percent(gap)}, tolerance {percent(tol)}", "fair", f"{means} {said}")


def prove_model(model: Any) -> Proof:
    """The certificate of a fitted model in words, with its limits."""
    baseline = "the intercept-only (null) model" if model.fit_intercept else "the zero predictor"
    proof, limit = prove(model.certificate_, model.tol, baseline), ""
    if len(getattr(model, "fallback_tasks_", [])):
        limit = " It is the gap of the multi-task fit, before tasks fell back to single-task models."
    elif len(getattr(model, "added_tasks_", [])):
        limit = " It is the gap of the last fit, without the tasks that were added since."
    return replace(proof, meaning=proof.meaning + limit)


# --- summary --------------------------------------------------------------------------------------------------------


def tell(facts: Facts) -> list[str]:
    """Paragraphs: the fit, the correlations of tasks, outlier tasks and used inputs, gains."""
    return [text for text in (_fit(facts), _correlations(facts), _sparsity(facts), _gains(facts)) if text]


def _fit(facts: Facts) -> str:
    model, data = facts.model, facts.data
    if facts.summary is not None and facts.only_terms:
        return _fit_of_terms(facts, facts.summary)
    T = facts.n_tasks
    what = f"The {T:,} classes of one target" if facts.one_target else "One task" if T == 1 else f"{T:,} tasks"
    text = f"{what} {'was' if T == 1 else 'were'} fitted{'' if T == 1 else ' jointly'}"
    if data is not None:
        text += f" from {count(data.n_observations, 'observation')} with {count(data.n_inputs, 'input')}"
        few, many = int(data.counts.min()), int(data.counts.max())
        if not facts.one_target and T > 1:
            text += f", {few:,} per task" if few == many else f", {few:,} to {many:,} per task"
    structures = " and ".join(type(structure).__name__ for structure in facts.structures)
    text += f". The model: {_kernel(model)}, the {_loss(model)} loss, the structure {structures}, alpha = {facts.alpha:.3g}"
    if facts.summary is not None:
        text += f", a common function ({in_words(facts.summary)[0]}) beside those of the tasks"
    return f"{text}{_search(model)}."


def _fit_of_terms(facts: Facts, summary: Summary) -> str:
    data, terms = facts.data, in_words(summary)
    text = f"The sum of {count(len(terms), 'term')} was fitted"
    if data is not None:
        text += f" from {count(data.n_observations, 'observation')} with {count(data.n_inputs, 'input')}"
    shown = "; ".join(terms[:6]) + (f"; and {len(terms) - 6:,} more" if len(terms) > 6 else "")
    model = facts.model
    return f"{text}: {shown}. The model: the {_loss(model)} loss, alpha = {facts.alpha:.3g}{_search(model)}."


def _search(model: Any) -> str:
    """What a search has tried."""
    if not hasattr(model, "cv_results_"):
        return ""
    tried = len(model.cv_results_["mean_test_score"])
    folds = "leave-one-out cross-validation" if model.cv == "loo" else f"{model.n_splits_}-fold cross-validation"
    return f", the best of {count(tried, 'setting')} by {folds}"


def _kernel(model: Any) -> str:
    kernel = getattr(model, "best_kernel_", model.kernel)  # a search may have chosen it
    if isinstance(kernel, list | tuple):
        return f"the sum of {len(kernel)} kernels"
    name = kernel if isinstance(kernel, str) else type(kernel).__name__
    return f"a {name} kernel{f' by {model.coef_.shape[1]} features' if hasattr(model, 'feature_map_') else ''}"


def _loss(model: Any) -> str:
    if isinstance(model.loss, dict):
        return "task-specific"
    return model.loss.replace("_", " ") if isinstance(model.loss, str) else type(model.loss).__name__


def _correlations(facts: Facts) -> str:
    T, C = facts.n_tasks, facts.correlation
    if T == 1 and not facts.only_terms:
        return "With one task there are no correlations to learn."
    if facts.vanished and facts.summary is None:
        return "All coefficients are zero at this alpha: every task predicts a constant. Try a smaller alpha."
    if not facts.related:
        return (
            "All coefficients are zero at this alpha: every prediction is the same. Try a smaller alpha."
            if facts.vanished
            else ""
        )
    if facts.vanished:
        return "The own functions of the tasks are zero at this alpha: every task has the common one. Try a smaller alpha."
    given = all(structure.known for structure in facts.structures)
    if not np.any(np.abs(C - np.eye(T)) > 1e-6):
        return "The tasks are uncorrelated: this is single-task learning" + (", as specified." if given else ".")
    text = ["The structure was specified, not learned."] if given else []
    text.append(_groups(facts))
    one, other, value = facts.pairs
    for k, what, shown in (
        (np.argmax(value), "Most correlated", value.max() > 0),
        (np.argmin(value), "Most negatively correlated", value.min() < -0.1),
    ):
        if shown:
            pair = f"{quoted(facts.names[one[k]])} and {quoted(facts.names[other[k]])}"
            text.append(f"{what} are {pair} ({signed(value[k])}).")
    needed = int(np.searchsorted(np.cumsum(facts.eigenvalues) / facts.eigenvalues.sum(), 0.95)) + 1
    if T > 2:
        explain = "explains" if needed == 1 else "explain"
        text.append(f"{count(needed, 'eigenvector')} of {T:,} {explain} 95 % of the trace of the structure.")
    return " ".join(text)


def _sparsity(facts: Facts) -> str:
    """Outlier tasks and unused inputs, where the structure finds them."""
    model, text = facts.model, []
    outliers = set(getattr(model, "outlier_tasks_", np.array([])).tolist())
    if outliers:
        names = [quoted(name) for name, label in zip(facts.names, model.tasks_.tolist(), strict=True) if label in outliers]
        more = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
        text.append(f"{count(len(names), 'outlier task')}: {', '.join(names[:8])}{more}.")
    if hasattr(model, "feature_structure_") and hasattr(model, "coef_"):
        size = np.linalg.norm(model.coef_, axis=0)
        used = int((size > 1e-6 * max(float(size.max()), 1e-300)).sum())
        text.append(f"{used:,} of {count(size.size, 'input')} {'is' if used == 1 else 'are'} used{_inputs(model, size)}.")
    return " ".join(text)


def _inputs(model: Any, size: Any) -> str:
    """The inputs with the largest coefficients, where inputs have names."""
    names = [name for name in getattr(model, "feature_names_in_", []) if name != model.task_column]
    if len(names) != size.size or not size.any():
        return ""
    return ", with the largest coefficients for " + ", ".join(
        quoted(clean_text(names[j])) for j in np.argsort(-size, kind="stable")[:5] if size[j] > 0
    )


def _groups(facts: Facts) -> str:
    sizes = sorted(map(len, facts.clusters.values()))
    real = [n for n in sizes if n > 1]
    single, noun = len(sizes) - len(real), facts.noun
    same = facts.groups[:, None] == facts.groups[None, :]
    off = ~np.eye(facts.n_tasks, dtype=bool)
    if len(sizes) == 1:
        return f"All {noun} form one cluster."
    if not real:
        if np.ptp(facts.correlation[off]) < 0.1:
            return f"There are no clusters: the correlation of any two {noun} is about {signed(facts.correlation[off].mean())}."
        return "There are no clusters."
    span = f"of {real[0]:,}" if real[0] == real[-1] else f"of {real[0]:,} to {real[-1]:,}"
    text = f"The {noun} form {count(len(real), 'cluster')} {span}"
    text += f"; {single:,} {'is' if single == 1 else 'are'} in no cluster." if single else "."
    if len(real) > 1:
        inside, across = facts.correlation[same & off].mean(), facts.correlation[~same].mean()
        text += f" The mean correlation is {signed(inside)} within clusters and {signed(across)} between them."
    return text


def _gains(facts: Facts) -> str:
    found = facts.gains
    if found is None:
        return ""
    scored, gain = found.scored, found.gain[found.scored]
    if scored.size == 0:
        return "No task could be scored by cross-validation, so gains are unknown."
    single, multi = (minus(f"{score[scored].mean():.3f}") for score in (found.alone, found.together))
    change = f"the mean score is {single} single-task and {multi} multi-task"
    if not facts.by_task or scored.size == 1:
        return f"In cross-validation {change}."
    better, worse = int(found.better.sum()), int(found.worse.sum())
    mean, error = float(gain.mean()), float(gain.std(ddof=1)) / scored.size**0.5
    clear = abs(mean) > CLEAR * error
    verdict = ("helps" if mean > 0 else "hurts") if clear else "makes no clear difference on average"
    unsure = scored.size - better - worse
    text = (
        f"Multi-task learning {verdict}: of {count(scored.size, 'task')}, {better:,} {'is' if better == 1 else 'are'} "
        f"predicted clearly better than by single-task models, {worse:,} clearly worse, and for {unsure:,} the difference is "
        f"within the noise; {change} (standard error over tasks {error:.3f})."
    )
    if gain.max() > 0:
        text += f" {quoted(facts.names[scored[np.argmax(gain)]])} gains most ({signed(gain.max())})"
        least = f", {quoted(facts.names[scored[np.argmin(gain)]])} loses most ({signed(gain.min())})"
        text += f"{least if gain.min() < 0 else ''}."
    fallen = len(getattr(facts.model, "fallback_tasks_", []))
    if fallen:
        text += f" {count(fallen, 'task')} with a loss {'keeps its' if fallen == 1 else 'keep their'} single-task model."
    return text
