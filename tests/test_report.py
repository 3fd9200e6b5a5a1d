"""The report: says what is true, shows any name, runs nothing but its own script, and answers to keys and pointer."""

import base64
import dataclasses
import hashlib
import json
import re
import shutil
import sys
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import taskloom
from taskloom import (
    MultiTaskClassifier,
    MultiTaskClassifierCV,
    MultiTaskRegressor,
    MultiTaskRegressorCV,
    compare_to_single_task,
    structures,
    write_report,
)
from taskloom.labels import display_names
from taskloom.problem.solution import Certificate
from taskloom.report import render_report
from taskloom.report.sentences import percent, prove

pytest.importorskip("jinja2")

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(2)>",
    "\"quotes\" & 'apostrophes' <!-- -->",
    "🧶 loom é 日本",
    "right\u202eto left",
    "x" * 5000,
    "tab\tnew\nline\x00",
    "{{ 7 * 7 }}{% raw %}",
    "\ud800 half",
    "",
]


def data(n_tasks=6, n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    centres = rng.normal(size=(2, 4))
    Y = X @ centres[np.arange(n_tasks) % 2].T + 0.5 * rng.normal(size=(n, n_tasks))
    return X, Y


@cache
def made(kind):
    """A fitted model and its data."""
    X, Y = data()
    labels = np.where(Y > 0, "up", "down")
    if kind == "wide":
        return MultiTaskRegressor(alpha=0.1).fit(X, Y), X, Y
    if kind == "gaps":
        Y[np.random.default_rng(1).random(Y.shape) < 0.3] = np.nan
        return MultiTaskRegressor(structures.Clusters(2), alpha=0.1).fit(X, Y), X, Y
    if kind == "long":
        frame = pd.DataFrame(np.repeat(X, 6, axis=0), columns=list("abcd")).assign(shop=np.tile(list("uvwxyz"), 30))
        return MultiTaskRegressor(alpha=0.1, task_column="shop").fit(frame, Y.ravel()), frame, Y.ravel()
    if kind == "kernel":
        return MultiTaskRegressor("frobenius", kernel="rbf", gamma=0.2, loss="huber", alpha=0.1).fit(X, Y), X, Y
    if kind == "mixed losses":
        table = pd.DataFrame({"spend": Y[:, 0], "churned": labels[:, 1]})
        return MultiTaskRegressor(loss={"spend": "squared", "churned": "logistic"}).fit(X, table), X, table
    if kind == "labels":
        return MultiTaskClassifier(alpha=0.01).fit(X, labels), X, labels
    if kind == "classes":
        y = np.array(["low", "middle", "high"])[np.digitize(Y[:, 0], [-0.7, 0.7])]
        return MultiTaskClassifierCV(alphas=[0.1, 0.01], cv=2, common=None, kernels=None).fit(X, y), X, y
    if kind == "search":
        return (
            MultiTaskRegressorCV(structures=["trace", "shared_mean"], alphas=4, cv=3, common=None, kernels=None).fit(X, Y),
            X,
            Y,
        )
    if kind == "fallback":
        odd = np.column_stack([np.repeat(Y[:, :1], 5, axis=1), -Y[:, 0]]) + np.random.default_rng(2).normal(size=Y.shape)
        return (
            MultiTaskRegressorCV(structures.SharedMean(100.0), alphas=[0.1], fallback="single", common=None, kernels=None).fit(
                X, odd
            ),
            X,
            odd,
        )
    if kind == "leave one out":
        return MultiTaskRegressorCV("shared_mean", alphas=3, cv="loo", common=None, kernels=None).fit(X, Y), X, Y
    if kind == "alone":
        return MultiTaskRegressor("independent").fit(X, Y), X, Y
    if kind == "features":
        X = pd.DataFrame(np.column_stack([X, 1e-9 * X[:, 0]]), columns=["a", "b", "c", "d", "<i>"])
        return MultiTaskRegressor(structures.FeatureSelection(), alpha=0.1).fit(X, Y), X, Y
    if kind == "two kernels":
        return MultiTaskRegressor(["trace", "frobenius"], kernel=["linear", "rbf"], alpha=0.1).fit(X, Y), X, Y
    if kind == "robust":
        Y = Y[:, [0, 0, 0, 0, 0, 1]] + 0.1 * np.random.default_rng(3).normal(size=Y.shape)
        return MultiTaskRegressor(structures.Robust(0.6), alpha=0.1).fit(X, Y), X, Y
    if kind == "vanished":
        return MultiTaskRegressor(alpha=1e6).fit(X, Y), X, Y
    if kind == "one task":
        return MultiTaskRegressor().fit(X, Y[:, 0]), X, Y[:, 0]
    if kind == "two tasks":
        return MultiTaskRegressor("frobenius").fit(X, Y[:, :2]), X, Y[:, :2]
    if kind == "numbers":
        table = pd.DataFrame(Y, columns=pd.Index([1, "1", 2.5, None, ("a", 1), -3], dtype=object))
        return MultiTaskRegressor(alpha=0.1).fit(X, table), X, table
    if kind == "hostile":
        X, Y = data(n_tasks=len(HOSTILE))
        table = pd.DataFrame(Y, columns=pd.Index(HOSTILE, dtype=object))
        return MultiTaskRegressorCV(alphas=3, cv=3, common=None, kernels=None).fit(X, table), X, table
    return of_terms(kind)


def of_terms(kind):
    """Models whose predictors are sums of terms."""
    rng = np.random.default_rng(4)
    shop, region = np.arange(90) % 6, rng.integers(0, 3, 90)
    hostile = kind == "hostile terms"
    names = [HOSTILE[k] for k in range(6)] if hostile else list("uvwxyz")
    table = pd.DataFrame(rng.normal(size=(90, 2)), columns=[HOSTILE[0], "b"] if hostile else ["a", "b"])
    inputs = list(table.columns)
    table["<shop>"], table["region"] = [names[k] for k in shop], region
    y = table[inputs[0]].to_numpy() + rng.normal(size=6)[shop] * (1 + table["b"].to_numpy()) + 0.2 * rng.normal(size=90)
    own = taskloom.Term("linear", by="<shop>", columns=inputs, structure=structures.Trace(), intercept=True)
    terms = [taskloom.Term("linear", columns=inputs, weight=np.inf), own, taskloom.Term("constant", by="region", weight=0.5)]
    if kind in ("terms", "hostile terms"):
        return MultiTaskRegressor(terms=terms, alpha=0.01).fit(table, y), table, y
    if kind == "terms of labels":
        return (
            MultiTaskClassifier(terms=[taskloom.Term("rbf", columns=inputs), terms[2]], alpha=0.01).fit(table, y > 0),
            table,
            y > 0,
        )
    if kind == "search of terms":
        terms = [terms[0], taskloom.Term("constant", by="<shop>"), taskloom.Term("constant", by="region")]
        return MultiTaskRegressorCV(terms=terms, alphas=[0.1, 0.001], cv=2).fit(table, y), table, y
    if kind == "vanished terms":
        return MultiTaskRegressor(terms=[own, terms[2]], alpha=1e9).fit(table, y), table, y
    table = table.drop(columns="region")
    settings = {"task_column": "<shop>", "alpha": 1e6 if kind == "vanished own parts" else 0.01}
    if kind == "common kernel":
        common = taskloom.Term("rbf", weight=2.0)
        return MultiTaskRegressor("frobenius", common=common, kernel="poly", degree=2, **settings).fit(table, y), table, y
    if kind in ("common", "vanished own parts"):
        return MultiTaskRegressor(common=True, **settings).fit(table, y), table, y
    raise AssertionError(kind)


KINDS = [
    "wide",
    "gaps",
    "long",
    "kernel",
    "mixed losses",
    "labels",
    "classes",
    "search",
    "fallback",
    "leave one out",
    "alone",
    "features",
    "two kernels",
    "robust",
    "vanished",
    "one task",
    "two tasks",
    "numbers",
    "hostile",
    "terms",
    "hostile terms",
    "terms of labels",
    "search of terms",
    "vanished terms",
    "common",
    "common kernel",
    "vanished own parts",
]


class Page(HTMLParser):
    """Reads a page strictly: every element that opens is closed in order."""

    VOID = frozenset({"meta", "link", "input", "img", "br", "circle", "line", "polyline", "polygon"})

    def __init__(self, html):
        super().__init__()
        self.open, self.attributes, self.text, self.tags = [], [], {}, []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend((tag, name, value) for name, value in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.extend((tag, name, value) for name, value in attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        where = self.open[-1] if self.open else ""
        self.text.setdefault(where, []).append(text)


def digest(text):
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_a_page_that_is_well_formed_and_locked(kind):
    html = render_report(*made(kind))
    page = Page(html)
    policy = next(value for _, name, value in page.attributes if name == "content" and "default-src" in value)
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert digest(page.text["style"][0]) in policy
    assert page.tags.count("script") == 2  # the facts, and ours
    assert digest(page.text["script"][1]) in policy
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), "the policy would stop it"
        assert name != "style", "the policy would stop it"
        if name in ("src", "href"):
            assert value.startswith("#") or value == "data:,", f"<{tag}> would load {value}"
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for _, name, value in page.attributes:
        if name in ("aria-labelledby", "aria-describedby", "aria-controls", "for") or (
            name == "href" and value.startswith("#")
        ):
            assert value.lstrip("#") in ids
    assert "nan" not in re.sub(r"<(script|pre|style).*?</\1>", "", html, flags=re.DOTALL).lower().split()


def test_without_data_and_without_history():
    model, X, Y = made("wide")
    html = render_report(model)
    assert "written without the data" in html
    assert "observations with" not in html
    bare = MultiTaskRegressor(alpha=0.1).fit(X, Y)
    del bare.history_
    assert "no history of iterations" in render_report(bare)


def test_hostile_names_are_shown_and_harmless():
    model, X, table = made("hostile")
    html = render_report(model, X, table, title="<b>bold</b>")
    page = Page(html)
    assert page.tags.count("img") == page.tags.count("b") == 0
    shown = page.text["bdi"]
    for name in (*HOSTILE[:5], "{{ 7 * 7 }}{% raw %}", "<b>bold</b>", "(no name)", "tab new line\ufffd", "\ufffd half"):
        assert any(name in text for text in ["".join(shown)]), name
    facts = json.loads(page.text["script"][0])
    assert facts["names"] == display_names(model.tasks_)
    assert max(map(len, facts["names"])) <= 120
    assert html.encode("utf-8")


def test_names_that_read_alike_are_told_apart():
    names = display_names([1, "1", "a" * 300, "a" * 299 + "b", "a" * 150 + "c" + "a" * 149, None, 2.5])
    assert len(set(names)) == 7
    assert {"1", "'1'", "None", "2.5"} <= set(names)


def test_numbers_in_the_page_are_those_of_the_model():
    model, X, Y = made("search")
    facts = json.loads(Page(render_report(model, X, Y)).text["script"][0])
    C = model.task_correlation()
    packed = np.frombuffer(base64.b64decode(facts["relations"]), "<i2") / 10000
    assert np.allclose(packed, C[np.tril_indices(6, -1)], atol=1e-4)
    assert facts["groups"] == model.task_clusters().tolist()
    assert sorted(facts["order"]) == list(range(6))
    for t, name in enumerate(model.tasks_.tolist()):
        shares = model.explain(name)
        assert dict(facts["contributions"][t]) == {
            model.tasks_.tolist().index(other): round(1000 * share) for other, share in shares.items() if abs(share) >= 5e-4
        }
    assert np.allclose(facts["gain"], model.transfer_["gain"], rtol=1e-4)
    assert facts["counts"] == [30] * 6


def test_words_say_what_was_found():
    model, X, Y = made("gaps")
    text = render_report(model, X, Y)
    assert f"6 tasks were fitted jointly from {int((~np.isnan(Y)).sum())} observations with 4 inputs" in text
    assert "The tasks form 2 clusters of 3." in text
    assert "Converged: duality gap" in text
    assert "The 3 classes of one target were fitted jointly" in render_report(*made("classes"))
    assert "All tasks form one cluster" in render_report(made("fallback")[0])
    assert "the correlation of any two tasks is about +0." in render_report(made("leave one out")[0])
    assert "this is single-task learning, as specified" in render_report(made("alone")[0])
    assert "All coefficients are zero at this alpha" in render_report(made("vanished")[0])
    assert "no correlations to learn" in render_report(made("one task")[0])
    assert "The structure was specified, not learned" in render_report(made("leave one out")[0])
    kept = len(made("fallback")[0].fallback_tasks_)
    assert kept >= 1
    assert f"{kept} task{'s' * (kept > 1)} with a loss keep" in render_report(made("fallback")[0])
    assert "4 of 5 inputs are used, with the largest coefficients for" in render_report(made("features")[0])
    assert made("robust")[0].outlier_tasks_.tolist() == [5]
    assert "1 outlier task: “\u20685\u2069”" in render_report(made("robust")[0])
    transfer = compare_to_single_task(model, X, Y, cv=3)
    assert "Multi-task learning" in render_report(model, transfer=transfer)


def test_whether_multi_task_learning_helps_is_judged_by_the_mean_gain():
    model, _, _ = made("gaps")
    names, T = model.tasks_.tolist(), len(model.tasks_)

    def told(gain, error):
        transfer = {"task": names, "alone": np.full(T, 0.5), "together": 0.5 + gain, "gain": gain, "standard_error": error}
        return render_report(model, transfer=transfer)

    even = np.full(T, 0.1) + 0.01 * np.arange(T)
    assert "Multi-task learning helps: of 6 tasks, 6 are predicted clearly better" in told(even, np.full(T, 0.01))
    assert "Multi-task learning hurts: of 6 tasks, 0 are predicted clearly better" in told(-even, np.full(T, 0.01))
    mixed = np.array([0.3, -0.01, 0.2, -0.01, 0.01, -0.01])
    said = told(mixed, np.array([0.2, 0.001, 0.2, 0.001, 0.001, 0.1]))  # two clearly worse, by next to nothing
    assert "Multi-task learning makes no clear difference on average: of 6 tasks, 1 is predicted clearly better" in said
    assert "(standard error over tasks 0.0" in said


def test_a_report_of_data_that_do_not_belong_together():
    model, X, Y = made("gaps")
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        render_report(model, X, Y[:3])


def test_the_certificate_in_words():
    def proof(gap, status="optimal", tol=1e-4):
        return prove(Certificate(2.0, 2.0 - gap, gap, gap, status, "It stopped"), tol)

    assert proof(3e-5).headline == "Converged: duality gap 0.003 %"
    assert (proof(0.0).headline, proof(3e-5).tone) == ("Converged: duality gap 0, up to rounding", "good")
    assert proof(0.025, "max_iter").headline == "Not converged: duality gap 2.5 %, tolerance 0.01 %"
    assert "It stopped." in proof(0.025, "max_iter").meaning
    assert "at best a stationary point" in proof(np.inf, "stationary").headline
    assert proof(np.nan, "stationary").tone == "none"
    assert [percent(x) for x in (0, 1e-12, 1.23e-7, 0.5, 12.0)] == [
        "0 %",
        "0.000001 %",
        "0.000013 %",
        "50 %",
        "1200 %",
    ]


def test_fits_that_stopped_early_or_prove_nothing_say_so():
    X, Y = data()
    with pytest.warns(ConvergenceWarning):
        early = MultiTaskRegressor(alpha=0.01, max_iter=1, tol=1e-12, loss="absolute").fit(X, Y)
    assert "Not converged" in render_report(early)
    early.certificate_ = dataclasses.replace(
        early.certificate_, relative_gap=np.inf, dual=-np.inf, gap=np.inf, status="stationary"
    )
    early.history_ = {**early.history_, "dual": np.full(early.n_iter_, -np.inf), "gap": np.full(early.n_iter_, np.inf)}
    html = render_report(early)
    Page(html)
    assert "at best a stationary point" in html
    assert "0.002 %" not in html


def test_an_added_task_is_in_the_page():
    X, Y = data()
    model = MultiTaskRegressor(alpha=0.1).fit(X, Y).add_task(X[:8], Y[:8, 0], name="late")
    facts = json.loads(Page(render_report(model)).text["script"][0])
    assert facts["names"][-1] == "late"
    assert facts["contributions"][-1] == []
    assert "without the tasks that were added since" in render_report(model)


@pytest.mark.parametrize("kind", ["wide", "kernel", "search", "classes", "gaps"])
def test_the_settings_fit_the_same_model_again(kind):
    model, X, y = made(kind)
    code = "".join(Page(render_report(model)).text["code"][:1])
    namespace = {"X": X, "y": y}
    exec(code, namespace)
    assert np.allclose(namespace["model"].structure_, model.structure_, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("kind", ["terms", "common", "common kernel", "terms of labels", "search of terms"])
def test_the_settings_of_terms_fit_the_same_model_again(kind):
    model, X, y = made(kind)
    namespace = {"X": X, "y": y}
    exec("".join(Page(render_report(model)).text["code"][:1]), namespace)
    assert type(namespace["model"]) is (MultiTaskRegressor if kind == "search of terms" else type(model))
    assert np.array_equal(namespace["model"].predict(X), model.predict(X))


def cells(html, section):
    """The cells of the tables of a section, as text."""
    part = html.split(f'id="{section}"')[1].split("</section>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", part, flags=re.DOTALL)
    return [[re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, flags=re.DOTALL)] for row in rows]


def test_terms_variances_and_coefficients_are_those_of_the_summary():
    model, X, y = made("terms")
    html, summary = render_report(model, X, y), model.summary()
    rows = cells(html, "terms")
    assert ["a + b", "unpenalised", "\u221e", ""] in rows
    assert ["(1 + a + b | &lt;shop&gt;)", "trace", "1", "6"] in rows
    assert ["(1 | region)", "independent", "0.5", "3"] in rows
    residual = f"{summary.residual_variance:.5g}"
    assert ["residual", "", residual, f"{summary.residual_variance**0.5:.5g}", ""] in rows
    for each in summary.coefficients:
        numbers = [f"{each.fitted:.5g}", f"{each.gls:.5g}", f"{each.std_error:.5g}", f"{each.z:.2f}"]
        assert [each.name, *(number.replace("-", "\u2212") for number in numbers)] in rows
    assert "MultiTaskRegressor: 3 terms" in html
    assert "The sum of 3 terms was fitted from 90 observations with 2 inputs" in html
    assert 'id="relations"' not in html
    assert "task" not in html.split('id="learned"')[1].split('id="proof"')[0]


def test_a_common_part_stands_beside_the_correlations_of_the_own_parts():
    model, X, y = made("common")
    html = render_report(model, X, y)
    facts = json.loads(Page(html).text["script"][0])
    packed = np.frombuffer(base64.b64decode(facts["relations"]), "<i2") / 10000
    assert np.allclose(packed, model.task_correlation()[np.tril_indices(6, -1)], atol=1e-4)
    assert "6 tasks were fitted jointly from 90 observations with 2 inputs" in html
    assert "a common function (\u2068a + b\u2069) beside those of the tasks" in html
    assert "These are the own functions of the tasks" in html
    assert "a common function (\u2068rbf(a, b)\u2069)" in render_report(made("common kernel")[0])
    assert "These are the own functions" not in render_report(made("wide")[0])


def test_terms_that_vanished_and_files_without_data_say_so(tmp_path):
    assert "every prediction is the same" in render_report(made("vanished terms")[0])
    assert "every task has the common one" in render_report(made("vanished own parts")[0])
    model, X, y = made("terms")
    model.save(tmp_path / "m", training=False)
    html = render_report(taskloom.load(tmp_path / "m"), X, y)
    assert "need the data of the fit, which this model does not hold" in html
    assert "Variance components (restricted" not in html
    assert ["a", f"{model.summary().coefficients[1].fitted:.5g}"] in cells(html, "terms")


def test_a_common_part_of_more_tasks_than_a_map_shows():
    n = 2001
    X = pd.DataFrame({"x": np.sin(np.arange(2 * n)), "person": np.arange(2 * n) % n})
    model = MultiTaskRegressor(common=True, task_column="person", alpha=0.1).fit(X, X["x"] + X["person"] % 3)
    html = render_report(model, X, X["x"] + X["person"] % 3)
    assert "Correlations of all pairs are shown for up to 2,000 tasks" in html
    assert ["(1 + x | person)", "trace", "1", "2001"] in cells(html, "terms")
    assert 'id="relations"' not in html


def test_a_page_of_150_tasks_is_small():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 5))
    Y = X @ rng.normal(size=(5, 150)) + rng.normal(size=(25, 150))
    table = pd.DataFrame(Y, columns=[f'<"&{t:03d}' + "é🧶" * 90 for t in range(150)])
    model = MultiTaskRegressor("frobenius", alpha=1.0).fit(X, table)
    transfer = {
        "task": model.tasks_,
        **{c: rng.normal(size=150) for c in ("alone", "together", "gain")},
        "standard_error": np.ones(150),
    }
    assert len(render_report(model, X, table, transfer=transfer).encode()) < 1_500_000


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    model = made("wide")[0]
    path = tmp_path / "page.html"
    assert write_report(model, path) == path
    before = path.read_text(encoding="utf-8")
    assert before == render_report(model)

    def full_disk(*args):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        write_report(model, path, title="another")
    assert path.read_text(encoding="utf-8") == before
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]


def test_what_is_refused(monkeypatch):
    X, _ = data()
    with pytest.raises(NotFittedError):
        render_report(MultiTaskRegressor())
    with pytest.raises(ValueError, match="needs a fitted taskloom estimator, got dict"):
        render_report({})
    with pytest.raises(ValueError, match="both X and y, or neither"):
        render_report(made("wide")[0], X)
    assert taskloom.write_report is write_report
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'taskloom\[report\]'"):
        render_report(made("wide")[0])


# --- in a browser ---------------------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
QUIET = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
FLAGS = ["--no-sandbox", "--disable-gpu", *QUIET]  # a container has no sandbox, and a browser talks to its maker if allowed


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api", reason="the page is tried in a browser with: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser, tmp_path):
    """Opens the page of a model from disk; whatever it complains about or asks for is a failure."""
    contexts, trouble = [], []

    def open_page(kind, **options):
        model, X, y = made(kind)
        path = write_report(model, tmp_path / f"{len(contexts)}.html", X, y)
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(f"dialog {dialog.message}"))
        page.on("request", lambda request: None if request.url == path.as_uri() else trouble.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert trouble == []


def test_pointer_and_keys_walk_the_map(visit):
    page = visit("search", viewport={"width": 1200, "height": 900})
    model = made("search")[0]
    sheet, readout = page.locator("#cursor"), page.locator("#readout")
    sheet.scroll_into_view_if_needed()
    box = sheet.bounding_box()
    page.mouse.move(box["x"] + box["width"] - 6, box["y"] + box["height"] - 6)  # the last cell: a task with itself
    order = json.loads(page.locator("#facts").text_content())["order"]
    assert readout.text_content().startswith(f"{model.tasks_[order[-1]]} (cluster")
    sheet.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowLeft")
    one, other = order[-1], order[0]
    value = f"{model.task_correlation()[one, other]:.2f}".replace("-", "\u2212")
    assert f"{model.tasks_[one]} and {model.tasks_[other]}: correlation {value}" in readout.text_content()
    assert page.locator("#live").text_content() == readout.text_content()
    page.keyboard.press("Enter")
    assert page.locator("#detail h3").text_content() == str(model.tasks_[one])
    best = next(iter(model.explain(model.tasks_[one])))
    first = page.locator("#detail li").first.text_content()
    assert first.startswith("its own data" if best == model.tasks_[one] else str(best))
    sheet.click(position={"x": box["width"] - 6, "y": box["height"] - 6})
    assert page.locator("#detail h3").text_content() == str(model.tasks_[order[-1]])
    page.locator("#detail li button").first.click()  # from a contributor to its own contributors
    assert page.evaluate("document.activeElement.tagName") == "H3"


def test_search_order_threshold_and_size(visit):
    page = visit("hostile", viewport={"width": 1200, "height": 900})
    drawn = "document.getElementById('cells').toDataURL()"
    before = page.evaluate(drawn)
    page.locator("input[value=given]").check()
    assert page.evaluate(drawn) != before
    page.locator("input[value=name]").check()
    page.locator("input[value=group]").check()
    assert page.evaluate(drawn) == before
    page.locator("#threshold").focus()
    for _ in range(19):
        page.keyboard.press("ArrowRight")
    assert page.locator("#threshold-value").text_content() == "0.95"
    C = made("hostile")[0].task_correlation()
    strong = int((np.abs(C[np.tril_indices(10, -1)]) >= 0.95).sum())
    assert page.locator("#pairs").text_content() == f"{strong} of 45 pairs shown"
    assert page.evaluate(drawn) != before
    width = page.locator("#cells").bounding_box()["width"]
    page.locator("#larger").click()
    page.locator("#larger").click()
    assert page.locator("#cells").bounding_box()["width"] > width
    page.locator("#search").fill("<SCRIPT>")
    assert page.locator("#found button").count() == 1
    page.keyboard.press("Enter")
    assert page.locator("#detail h3").text_content() == "<script>alert(1)</script>"
    page.locator("#search").fill("nobody is called that")
    assert page.locator("#found button").count() == 0
    assert page.locator("#matches").text_content() == "No task has that in its name"


def test_the_table_of_gains_sorts(visit):
    page = visit("search")
    model = made("search")[0]

    def tasks():
        return page.locator("#gains-table tbody th").all_text_contents()

    by_gain = [str(model.tasks_[t]) for t in np.argsort(-model.transfer_["gain"], kind="stable")]
    assert tasks() == by_gain
    page.get_by_role("button", name="gain").click()
    assert tasks() == by_gain[::-1]
    page.get_by_role("button", name="task", exact=True).click()
    assert tasks() == sorted(by_gain)


@pytest.mark.parametrize(
    ("kind", "scheme"),
    [("hostile", "dark"), ("search", "light"), ("one task", "dark"), ("features", "light"), ("terms", "light")],
)
def test_nothing_is_wider_than_a_phone(visit, kind, scheme):
    page = visit(kind, viewport={"width": 375, "height": 700}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    light = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 252)"
    assert light == (scheme == "light")


def test_it_prints_in_light_with_everything_open(visit):
    page = visit("search", color_scheme="dark")
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("[...document.querySelectorAll('details')].every((each) => each.open)")
    corner = """() => {
        const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
        pen.drawImage(document.getElementById("cells"), 0, 0);
        return [...pen.getImageData(0, 0, 1, 1).data];
    }"""
    assert page.evaluate(corner) == [255, 255, 255, 255]
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(corner) == [20, 23, 27, 255]
