"""The command line: what it says, what it writes, and how it fails (one sentence, and an exit code)."""

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from command_line import LONG, QUICK, environment, taskloom_

import taskloom
from taskloom import cli
from taskloom.cli.gains_table import compare_tasks, variances
from taskloom.cli.structure_names import every, parse, written
from taskloom.cli.table_roles import TableRoles

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("safetensors")

# --- starting -------------------------------------------------------------------------------------------------------------


def test_help_starts_fast_and_imports_nothing_heavy():
    for argv in ([], ["--help"], ["fit", "--help"], ["demo", "-h"], ["--version"]):
        code = (
            "import sys, time; began = time.perf_counter()\n"
            "from taskloom.cli import run\n"
            f"code = run({argv!r})\n"
            "heavy = {'numpy', 'scipy', 'sklearn', 'pandas', 'rich', 'safetensors', 'pyarrow'} & set(sys.modules)\n"
            "print(code, sorted(heavy), time.process_time())"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
        result = done.stdout.splitlines()[-1]
        assert result.startswith("0 []"), result
        assert float(result.split()[-1]) < 0.5


def test_help_lists_every_command(capsys):
    assert taskloom_() == 0
    text = capsys.readouterr().out
    for name in ("demo", "fit", "predict", "inspect", "compare", "reproduce"):
        assert f"  {name} " in text
        assert taskloom_(name, "--help") == 0
    assert taskloom_("--version") == 0
    assert f"taskloom {taskloom.__version__}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["nonsense"], "No such command"),
        (["fit"], "Missing argument"),
        (["fit", "t.csv"], "Give --target"),
        (["fit", "t.csv", "--target", "a", "--targets", "b"], "Give --target"),
        (["fit", "t.csv", "--targets", "a,b", "--task", "c"], "--task is for long tables"),
        (["fit", "t.csv", "--targets", "a,,b"], "empty name"),
        (["fit", "t.csv", "--targets", "a,a"], "named twice"),
        (["fit", "t.csv", *LONG, "--alphas", "-1"], "neither a count"),
        (["fit", "t.csv", *LONG, "--alphas", "1,nan"], "neither a count"),
        (["fit", "t.csv", *LONG, "--cv", "1"], "--cv"),
    ],
)
def test_usage_errors_are_code_2(argv, words, capsys):
    assert taskloom_(*argv) == cli.USAGE
    assert words in capsys.readouterr().err


def test_without_click_one_sentence_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    monkeypatch.delitem(sys.modules, "taskloom.cli.app", raising=False)
    assert taskloom_("demo") == cli.FAILED
    assert capsys.readouterr().err == 'taskloom: the command line needs click and rich: python -m pip install "taskloom[cli]"\n'


def test_the_page_shows_commands_that_exist():
    """Every command line of docs/cli.md is understood."""
    from taskloom.cli.app import app

    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    commands = re.findall(r"^\$ taskloom (.+)$", page, flags=re.MULTILINE)
    assert len(commands) >= 5
    for line in commands:
        name, *words = line.split()
        app.get_command(None, name).make_context(name, words)


# --- demo -----------------------------------------------------------------------------------------------------------------


def test_the_demonstration(capsys, tmp_path):
    assert taskloom_("demo", "--report", tmp_path / "r.html") == 0
    text = capsys.readouterr().out
    scores = [float(line.split()[-3]) for line in text.splitlines() if line.endswith("%")]
    assert len(scores) == 3
    assert all(score > scores[0] + 0.03 for score in scores[1:])  # on rows that had no part in anything
    assert "60 of 60 tasks are in the right cluster" in text
    assert "Optimal" in text
    assert f"report: {tmp_path / 'r.html'}" in text or "no report: " in text


def test_the_demonstration_on_digits(capsys):
    assert taskloom_("demo", "--data", "digits", "--no-report", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["models"][1]["new_rows"] > 0.7
    assert found["transfer"]["task"] == [str(k) for k in range(10)]
    assert all(model["certificate"]["relative_gap"] <= 1e-4 for model in found["models"])


def test_the_demonstration_hands_out_its_data(tmp_path, capsys):
    assert taskloom_("demo", "--table", tmp_path / "shops.csv") == 0
    frame = pd.read_csv(tmp_path / "shops.csv")
    assert frame.shape == (660, 8)
    assert frame["sales"].tolist() == taskloom.datasets.load_shops().y.tolist()


# --- fit ------------------------------------------------------------------------------------------------------------------


def test_fit_says_what_it_decided_and_shows_each_task(folder, capsys):
    assert taskloom_("fit", folder / "long.csv", *LONG, "--drop", "pupil,passed", "--categorical", "year", *QUICK) == 0
    text = capsys.readouterr()
    assert "120 rows, 120 observations, 6 tasks in column 'school'; targets are numeric, so these are regression" in text.err
    assert "2 numeric and 2 categorical columns" in text.out  # true and false are numeric
    assert "Optimal" in text.out
    rows = [line.split() for line in text.out.splitlines() if line.startswith("school ")]
    assert len(rows) == 6
    assert all(float(row[3]) > 0.7 for row in rows)


def test_the_estimate_is_that_of_scikit_learns_own_cross_validation(folder, capsys):
    """The scores of the command against out-of-fold predictions that are computed independently."""
    assert (
        taskloom_("fit", folder / "long.csv", *LONG, "--drop", "pupil,passed", "--cv", "3", "--alphas", "0.05", "--json", "-q")
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    frame = pd.read_csv(folder / "long.csv")
    table = taskloom.TablePreprocessor(task_column="school")
    X = table.fit_transform(frame.drop(columns=["pupil", "passed", "score"]))
    structure = {"Trace()": "trace", "SharedMean(gamma=1.0)": "shared_mean"}[found["structure"]]
    task = frame["school"].str[-1].astype(int).to_numpy()
    fold = np.empty(120, int)
    fold[np.argsort(task, kind="stable")] = np.arange(120) % 3
    guess = np.empty(120)
    for k in range(3):
        model = taskloom.MultiTaskRegressor(structure, alpha=0.05, task_column="school")
        guess[fold == k] = model.fit(X[fold != k], frame.score[fold != k]).predict(X[fold == k])
    for t, score in enumerate(found["transfer"]["together"]):
        mine = task == t
        expected = 1 - np.mean((guess - frame.score)[mine] ** 2) / np.var(frame.score[mine])
        assert np.isclose(score, expected, atol=1e-6)


def test_fit_wide_with_a_kernel_and_rows_held_out(folder, capsys, tmp_path):
    options = [
        "--targets",
        "maths,art,sport",
        "--drop",
        "pupil",
        "--kernel",
        "rbf",
        "--holdout",
        "0.25",
        *QUICK,
        "--json",
        "-q",
    ]
    assert taskloom_("fit", folder / "wide.csv", *options, "--save", tmp_path / "m") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["transfer"]["task"] == ["maths", "art", "sport"]
    assert all(np.array(found["held_out"]["together"]) > 0.3)
    assert found["certificate"]["status"] == "optimal"
    frame = pd.read_csv(folder / "wide.csv")
    assert taskloom.load(tmp_path / "m").predict(frame).shape == (120, 3)


def test_a_few_rows_held_out_are_scored_by_the_spread_of_all():
    """Two rows of a task may be alike by chance; their own variance would make nonsense of its score."""
    frame = pd.DataFrame({"x": np.arange(6.0), "task": "a"})
    data = TableRoles(
        frame, np.array([0.0, 4.0, 2.0, 2.0, 1.0, 3.0]), False, "task", (), ["a"], np.arange(6), np.zeros(6, int), "long"
    )
    kept = data.part(np.array([2, 3]))
    table = compare_tasks(kept, (np.array([2.0, 2.0]), np.array([3.0, 2.0])), variances(data))
    assert table["alone"].tolist() == [1.0]
    assert np.allclose(table["together"], 1 - 0.5 / np.var(data.y))
    assert np.allclose(table["standard_error"], np.std([1, 0], ddof=1) / np.sqrt(2) / np.var(data.y))


def test_labels_are_noticed(folder, capsys, tmp_path):
    options = ["--target", "passed", "--task", "school", "--drop", "pupil,score", *QUICK, "--save", tmp_path / "c"]
    assert taskloom_("fit", folder / "long.csv", *options) == 0
    text = capsys.readouterr()
    assert "targets are class labels, so these are classification tasks" in text.err
    assert "single-task accuracy" in text.out
    assert taskloom_("predict", tmp_path / "c", folder / "long.csv", "-o", tmp_path / "out.csv") == 0
    out = pd.read_csv(tmp_path / "out.csv")
    assert list(out.columns) == ["pupil", "school", "score", "passed", "prediction", "probability no", "probability yes"]
    assert np.allclose(out["probability no"] + out["probability yes"], 1)
    assert np.mean(out["prediction"] == out["passed"]) > 0.8


def test_classes_of_one_target_are_tasks(folder, capsys, tmp_path):
    options = ["--target", "year", "--classify", "--drop", "pupil,passed,school", *QUICK, "--loss", "squared", "-q"]
    assert taskloom_("fit", folder / "long.csv", *options, "--save", tmp_path / "c") == 0
    assert taskloom_("predict", tmp_path / "c", folder / "long.csv", "-o", tmp_path / "o.csv") == 0
    assert set(pd.read_csv(tmp_path / "o.csv")["prediction"]) <= {1, 2, 3}


def test_an_unproved_fit_has_a_code_of_its_own(folder, capsys, tmp_path):
    options = [*LONG, "--drop", "pupil,passed", *QUICK, "--max-iter", "1", "--tol", "1e-17", "--save", tmp_path / "m"]
    assert taskloom_("fit", folder / "long.csv", *options) == cli.NOT_PROVED
    assert "not proved to be within --tol" in capsys.readouterr().err
    assert taskloom.load(tmp_path / "m")[-1].certificate_.status != "optimal"


def test_compare_ranks_structures(folder, capsys):
    options = [*LONG, "--drop", "pupil,passed", "--alphas", "3", "--cv", "3"]
    assert taskloom_("compare", folder / "long.csv", *options, "--structure", "independent,trace,shared_mean:5", "--json") == 0
    ranking = json.loads(capsys.readouterr().out)["ranking"]
    assert {row["structure"] for row in ranking} == {"independent", "trace", "shared_mean:5"}
    assert [row["score"] for row in ranking] == sorted((row["score"] for row in ranking), reverse=True)
    assert all(row["relative_gap"] <= 1e-4 for row in ranking)
    assert ranking[0]["behind"] == 0
    assert all(row["behind"] > 0 and row["behind_error"] > 0 for row in ranking[1:])
    assert taskloom_("compare", folder / "long.csv", *options, "--structure", "trace,frobenius") == 0
    assert "duality gap" in capsys.readouterr().out


def test_structures_are_read_and_written_alike():
    for text in ("trace", "unit_trace", "clusters:3", "shared_mean:2.5", "schatten:1.5", "log_det:0.5"):
        assert written(parse(text)) == text
    assert {written(structure).split(":")[0] for structure in every(30, linear=False)} >= {"trace", "clusters", "independent"}
    for text, words in (
        ("nonsense", "must be one of"),
        ("clusters:0", "n_clusters >= 1"),
        ("trace:1:2", "too many parameters"),
    ):
        with pytest.raises(ValueError, match=words):
            parse(text)


# --- predict and inspect --------------------------------------------------------------------------------------------------


def test_predict_streams_and_equals_the_model(folder, saved, tmp_path, capsys):
    for table, rows, name in (("long.csv", 7, "a.csv"), ("long.csv", 20_000, "b.csv"), ("long.parquet", 7, "c.parquet")):
        assert taskloom_("predict", saved, folder / table, "-o", tmp_path / name, "--rows", rows) == 0
    expected = taskloom.load(saved).predict(pd.read_csv(folder / "long.csv"))
    for frame in (pd.read_csv(tmp_path / "a.csv"), pd.read_csv(tmp_path / "b.csv"), pd.read_parquet(tmp_path / "c.parquet")):
        assert list(frame.columns) == ["pupil", "school", "score", "passed", "prediction"]
        assert np.allclose(frame["prediction"], expected, rtol=1e-13)
        assert frame["pupil"].tolist() == [f"p{i}" for i in range(120)]
    capsys.readouterr()
    assert taskloom_("predict", saved, folder / "long.csv", "--keep-inputs") == 0
    assert capsys.readouterr().out.splitlines()[0] == "pupil,age,gender,boards,year,school,score,passed,prediction"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv", "c.parquet"]


def test_memory_does_not_grow_with_the_table(folder, saved, tmp_path):
    """A large table in small pieces needs a fraction of what it needs at once."""
    lines = (folder / "long.csv").read_text().splitlines()
    (tmp_path / "big.csv").write_text("\n".join([lines[0], *(lines[1:] * 60)]) + "\n")
    peaks = []
    for rows in (200, 10_000):
        tracemalloc.start()
        assert taskloom_("predict", saved, tmp_path / "big.csv", "-o", tmp_path / "out.csv", "--rows", rows, "-q") == 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len((tmp_path / "out.csv").read_text().splitlines()) == 7201
    assert peaks[0] < peaks[1] / 4


def test_new_tasks_new_categories_and_missing_cells(folder, saved, tmp_path, capsys):
    frame = (
        pd.read_csv(folder / "long.csv").head(3).assign(school="elsewhere", gender=["other", None, "boy"], age=[None, 11, 12])
    )
    frame.to_csv(tmp_path / "new.csv", index=False)
    assert taskloom_("predict", saved, tmp_path / "new.csv") == cli.FAILED
    assert "task 'elsewhere' was not seen in training" in capsys.readouterr().err
    assert taskloom_("predict", saved, tmp_path / "new.csv", "--unseen", "mean", "-o", tmp_path / "o.csv") == 0
    assert np.isfinite(pd.read_csv(tmp_path / "o.csv")["prediction"]).all()


def test_dangerous_names_stay_what_they_are(folder, tmp_path, capsys):
    """Cells that a spreadsheet would run are data: kept as they are, quoted only where CSV needs it."""
    names = ["=1+1", "@sum", 'a "b", c', "-x", "\x1b[31mred", "new\nline"]
    frame = pd.read_csv(folder / "long.csv").drop(columns=["pupil", "passed"])
    frame["school"] = [names[i % 6] for i in range(len(frame))]
    frame.to_csv(tmp_path / "t.csv", index=False)
    assert taskloom_("fit", tmp_path / "t.csv", *LONG, *QUICK, "--save", tmp_path / "m") == 0
    text = capsys.readouterr().out
    assert "\x1b[31mred" not in text
    assert r"\x1b[31mred" in text
    assert taskloom_("predict", tmp_path / "m", tmp_path / "t.csv", "-o", tmp_path / "o.csv") == 0
    assert pd.read_csv(tmp_path / "o.csv")["school"].tolist() == frame["school"].tolist()
    assert taskloom_("inspect", tmp_path / "m") == 0
    assert "\x1b[31mred" not in capsys.readouterr().out


def test_inspect(saved, capsys):
    assert taskloom_("inspect", saved) == 0
    text = capsys.readouterr().out
    assert re.search(r"tasks +6: school 0, school 1", text)
    assert "Optimal" in text
    assert "categorical: gender (3 levels)" in text
    assert taskloom_("inspect", saved, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    model = taskloom.load(saved)[-1]
    assert found["certificate"]["gap"] == model.certificate_.gap
    assert found["alpha"] == model.alpha_


def test_reproduce_says_what_there_is(capsys):
    code = taskloom_("reproduce")
    text = capsys.readouterr()
    assert (code == 0 and text.out) or "no experiments" in text.err


def test_a_command_starts_without_what_it_does_not_use(saved):
    """Not scikit-learn's metrics and searches, nor what scikit-learn imports in any case: SciPy's statistics, and pandas."""
    lines = [
        "import sys",
        "from contextlib import redirect_stdout, suppress",
        "from io import StringIO",
        "from taskloom.cli import main",
        f"with suppress(SystemExit), redirect_stdout(StringIO()): main(['inspect', {str(saved)!r}])",
        "heavy = ['scipy.stats._stats_py', 'pandas.core.api', 'sklearn.metrics', 'sklearn.model_selection']",
        "assert 'taskloom.estimators.fitted' in sys.modules",
        "assert not set(heavy) & set(sys.modules), set(heavy) & set(sys.modules)",
        "import pandas, scipy.stats",  # they are there for those who use them
        "assert pandas.DataFrame({'a': [1]}).a[0] == 1 and scipy.stats.rankdata([2, 1]).tolist() == [2, 1]",
        "assert type(sys.modules['pandas']).__name__ == 'module'",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, env=environment())
