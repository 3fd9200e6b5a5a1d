"""Simulated tasks tell the truth about themselves; files arrive whole, checked, and from wherever an interruption left them."""

import hashlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from taskloom import MultiTaskClassifier, MultiTaskRegressor, datasets
from taskloom.datasets import download as store
from taskloom.datasets import real
from taskloom.datasets.synthetic import STRUCTURES

SHARED = Path(os.environ.get("TASKLOOM_DATA") or Path(__file__).parents[2] / "shared" / "data")


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("shared", [False, True])
def test_both_layouts_are_one_problem(structure, shared):
    data = datasets.make_tasks(structure, 5, 12, 4, missing=0.3, shared=shared, random_state=0)
    options = {"alpha": 0.01, "tol": 1e-9}
    long = MultiTaskRegressor("trace", task_column=-1, **options).fit(data.X, data.y)
    wide = MultiTaskRegressor("trace", **options).fit(data.X_wide, data.Y)
    np.testing.assert_allclose(long.coef_, wide.coef_, atol=1e-6)
    assert np.sum(~np.isnan(data.Y)) == data.y.size < 60
    np.testing.assert_allclose(np.diag(data.structure), 1.0)
    assert np.linalg.eigvalsh(data.structure).min() > -1e-9


@pytest.mark.parametrize("structure", STRUCTURES)
def test_weights_follow_the_structure(structure):
    """Over many features the inner products of the weights are the structure; without noise the weights are the best fit."""
    data = datasets.make_tasks(structure, 6, 2, 20_000, noise=0.0, random_state=1)
    np.testing.assert_allclose(data.coef @ data.coef.T, data.structure, atol=0.05)
    few = datasets.make_tasks(structure, 6, 30, 4, noise=0.0, random_state=1)
    exact = MultiTaskRegressor("independent", alpha=1e-10, task_column=-1, fit_intercept=False).fit(few.X, few.y)
    np.testing.assert_allclose(exact.coef_, few.coef, atol=1e-5)


def test_structures_are_what_they_are_called():
    clusters = datasets.make_tasks("clusters", 9, random_state=0)
    alike = clusters.groups[:, None] == clusters.groups
    assert clusters.structure[alike].min() > 0.9
    assert np.all(clusters.structure[~alike] == 0)
    assert np.linalg.matrix_rank(datasets.make_tasks("low_rank", 9, random_state=0).structure) == 2
    ring = datasets.make_tasks("graph", 9, random_state=0)
    assert np.all(ring.adjacency.sum(axis=1) == 2)
    assert ring.structure[ring.adjacency > 0].min() > ring.structure[(ring.adjacency == 0) & ~np.eye(9, dtype=bool)].max()
    sparse = datasets.make_tasks("sparse", 9, random_state=0).structure
    assert 0 < np.sum(np.triu(sparse, 1) != 0) <= 3


def test_sizes_missing_and_labels():
    data = datasets.make_tasks("clusters", 4, [3, 10, 40, 5], 3, missing=0.5, task="classification", random_state=0)
    which = data.X[:, -1]
    for t, size in enumerate([3, 10, 40, 5]):
        labels = data.y[which == t]
        assert set(labels) == {-1.0, 1.0}
        assert 2 <= labels.size <= size
    MultiTaskClassifier(task_column=-1).fit(data.X, data.y)
    same = datasets.make_tasks("clusters", 4, [3, 10, 40, 5], 3, missing=0.5, task="classification", random_state=0)
    np.testing.assert_array_equal(same.X, data.X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"structure": "tree"}, "structure must be one of .*'tree'"),
        ({"task": "ranking"}, "got 'ranking'"),
        ({"missing": 1.0}, "missing is a share.*1.0"),
        ({"noise": -1.0}, "noise must be at least 0, got -1.0"),
        ({"n_samples": [3, 3]}, "one number for each of the 12 tasks, got 2"),
        ({"n_samples": 1}, "at least 2 samples, got 1"),
        ({"n_tasks": 2, "n_samples": [3, 4], "shared": True}, "same number of samples"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        datasets.make_tasks(**options)


CONTENT = bytes(range(256)) * 1000


class Server(BaseHTTPRequestHandler):
    """Serves CONTENT, parts of it on request, or the first half of it (and then hangs up)."""

    broken = False
    asked: list = []  # noqa: RUF012 (shared on purpose)

    def do_GET(self):
        self.asked.append(self.headers.get("Range"))
        start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-")) if self.headers.get("Range") else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if self.broken else body)

    def log_message(self, *args):
        pass


@pytest.fixture
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Server.broken, Server.asked = False, []
    yield f"http://127.0.0.1:{server.server_port}/file.bin"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_interrupted_download_goes_on_where_it_was(address, tmp_path):
    remote = store.Remote("file.bin", address, hashlib.sha256(CONTENT).hexdigest())
    Server.broken = True
    with pytest.raises(OSError, match=f"stopped after {len(CONTENT) // 2} of {len(CONTENT)} bytes; call again"):
        store.download(remote, tmp_path)
    assert not (tmp_path / "file.bin").exists()
    Server.broken = False
    assert store.download(remote, tmp_path).read_bytes() == CONTENT
    assert Server.asked == [None, f"bytes={len(CONTENT) // 2}-"]
    store.download(remote, tmp_path)
    assert len(Server.asked) == 2, "what is there is not fetched again"
    assert [path.name for path in tmp_path.iterdir()] == ["file.bin"]


def test_a_complete_part_is_taken(address, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    remote = store.Remote("file.bin", address, hashlib.sha256(CONTENT).hexdigest())
    assert store.download(remote, tmp_path).read_bytes() == CONTENT


def test_a_wrong_checksum_keeps_nothing(address, tmp_path):
    with pytest.raises(ValueError, match="expected 00ff: the file was not kept"):
        store.download(store.Remote("file.bin", address, "00ff"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_network_the_message_says_what_to_do(tmp_path, monkeypatch):
    gone = [store.Remote(remote.name, "http://127.0.0.1:9/nothing") for remote in real.SARCOS]
    monkeypatch.setattr(real, "SARCOS", gone)
    with pytest.raises(
        OSError, match=r"SARCOS could not be downloaded .*put sarcos.npz.* into .*data_home=.*TASKLOOM_DATA"
    ) as told:
        datasets.fetch_sarcos(data_home=tmp_path)
    assert str(tmp_path) in str(told.value)
    with pytest.raises(OSError, match=r"School is not in .* and download_if_missing=False"):
        datasets.fetch_school(data_home=tmp_path, download_if_missing=False)
    with pytest.raises(OSError, match=r"LLC.* is not published anywhere: put scene15_llc.npz into"):
        datasets.fetch_scenes(data_home=tmp_path)


def test_the_data_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TASKLOOM_DATA", str(tmp_path))
    assert datasets.get_data_home() == tmp_path
    assert datasets.get_data_home("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("TASKLOOM_DATA")
    assert datasets.get_data_home() == Path.home() / "taskloom_data"


def test_sarcos_from_the_published_files(tmp_path, monkeypatch):
    table = np.zeros((44484, 28), np.float32)
    table[3, 22] = 2.0
    savemat(tmp_path / "sarcos_inv.mat", {"sarcos_inv": table}, do_compression=True)
    savemat(tmp_path / "sarcos_inv_test.mat", {"sarcos_inv_test": table[::10]}, do_compression=True)
    with pytest.raises(ValueError, match="does not hold SARCOS"):
        datasets.fetch_sarcos(data_home=tmp_path)
    monkeypatch.setattr(real, "SARCOS_SUMS", (0.0, 0.0))
    data = datasets.fetch_sarcos(data_home=tmp_path)
    assert data.Y[3, 1] == 2.0
    assert data.complete.all()
    assert data.test_rows.size == 4449


def test_school_from_the_published_files(tmp_path, monkeypatch):
    X, y = np.arange(28 * 6).reshape(28, 6), np.arange(6)[:, None]
    savemat(tmp_path / "school_b.mat", {"x": X, "y": y, "task_indexes": np.array([[1], [3]])})
    for k in range(1, 11):
        savemat(tmp_path / f"school_{k}_indexes.mat", {"tr": np.array([[1, 2, k % 4 + 3]])})
    with pytest.raises(ValueError, match="does not hold School"):
        datasets.fetch_school(data_home=tmp_path)
    monkeypatch.setattr(real, "school_digest", lambda _: real.SCHOOL_SHA256)
    data = datasets.fetch_school(data_home=tmp_path)
    assert data.task.tolist() == [0, 0, 1, 1, 1, 1]
    assert data.X.shape == (6, 27)
    assert data.train_split[0].tolist() == [True, True, False, True, False, False]


@pytest.mark.skipif(not (SHARED / "school.npz").exists(), reason="the data sets are not on this machine")
def test_the_real_archives():
    sarcos = datasets.fetch_sarcos(data_home=SHARED)
    assert sarcos.X.shape == (44484, 21)
    assert sarcos.complete.sum() == 5794
    np.testing.assert_allclose([sarcos.X.sum(), sarcos.Y[:, 0].sum()], real.SARCOS_SUMS)
    school = datasets.fetch_school(data_home=SHARED)
    assert np.unique(school.task).size == 139
    with np.load(SHARED / "school.npz") as file:
        assert real.school_digest(dict(file)) == real.SCHOOL_SHA256
