"""Means, standard deviations and paired differences over the repetitions; tables and curves with the printed numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..metrics import normalized_improvement

Array = np.ndarray
Printed = dict[str, dict[str, list[float]]]
BASELINES = ["STL, one strength"]
TOLERANCE = 1e-4  # largest relative duality gap of a fit


@dataclass(frozen=True)
class Protocol:
    """One way to run an experiment: where its results are in the record, and its title in the table (and in the plot)."""

    key: str
    title: str
    short: str = ""


@dataclass(frozen=True)
class ScoreTable:
    """An experiment that compares methods by a score at several sizes, under each of its protocols.

    ``score`` is ``"nmse"`` (smaller is better; nI is the paper's) or a score where larger is better (then ``gain``). With
    several protocols, units name theirs under ``kind``, and the record lists them under ``recorded``.
    """

    score: str
    label: str
    protocols: dict[str, Protocol]
    printed: Printed = field(default_factory=dict)
    printed_sizes: list[int] = field(default_factory=list)
    kind: str | None = None
    recorded: str = ""

    @property
    def measure(self) -> str:
        return "nI" if self.score == "nmse" else "gain"

    def units(self, settings: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            ({self.kind: name} if self.kind else {}) | {"repetition": repetition, "size": size}
            for name, protocol in self.protocols.items()
            for repetition in range(settings[protocol.key.replace("results", "repetitions")])
            for size in settings["sizes"]
        ]

    def summarise(self, settings: dict[str, Any], done: list[tuple[dict, dict]]) -> dict[str, Any]:
        """Results of each protocol by method, ``baselines`` (other ways of single-task learning), the worst certificates."""
        parts = {}
        for name, protocol in self.protocols.items():
            here = [pair for pair in done if not self.kind or pair[0][self.kind] == name]
            parts[protocol.key] = {method: self._entry(here, settings, method) for method in settings["methods"]}
        return {
            "printed": self.printed,
            "printed_sizes": self.printed_sizes,
            **{key: {name: entry for name, entry in part.items() if name not in BASELINES} for key, part in parts.items()},
            "baselines": {key: {name: part[name] for name in BASELINES if name in part} for key, part in parts.items()},
            "certificates": _worst(settings["methods"], [result for _, result in done]),
            **({self.recorded: {name: protocol.key for name, protocol in self.protocols.items()}} if self.kind else {}),
        }

    def _entry(self, done: list[tuple[dict, dict]], settings: dict[str, Any], name: str) -> dict[str, Any]:
        """The scores of a method: means over the repetitions, in the order of the sizes; compared with ``STL``."""
        sizes, repetitions = settings["sizes"], sorted({unit["repetition"] for unit, _ in done})
        by_place = {(unit["repetition"], unit["size"]): result for unit, result in done}

        def grid(method: str, what: str) -> list[list[Any]]:
            return [[by_place[r, size][method][what] for size in sizes] for r in repetitions]

        mine, single = np.array(grid(name, self.score)), np.array(grid("STL", self.score))
        better = single - mine if self.score == "nmse" else mine - single
        gain = np.vectorize(lambda a, b: normalized_improvement([a], [b]))(single, mine) if self.score == "nmse" else better
        single_runs = {
            self.score: mine.tolist(),
            self.measure: gain.tolist(),
            "setting": grid(name, "setting"),
            "alpha": grid(name, "alpha"),
        }
        return {
            "sizes": sizes,
            self.score: mine.mean(axis=0).tolist(),
            f"{self.score}_std": _deviation(mine).tolist(),
            self.measure: gain.mean(axis=0).tolist(),
            "better_than_STL": better.mean(axis=0).tolist(),
            "better_than_STL_standard_error": (_deviation(better) / np.sqrt(len(repetitions))).tolist(),
            "repetitions": [
                {"repetition": r, "seed": r, "sizes": sizes, **{what: values[k] for what, values in single_runs.items()}}
                for k, r in enumerate(repetitions)
            ],
        }

    def table(self, record: dict[str, Any]) -> tuple[str, list[list[Any]]]:
        """Markdown for people, rows for a CSV file."""
        lines, rows, sizes = [], [], record["settings"]["sizes"]
        columns = [self.score, f"{self.score}_std", self.measure, "better_than_STL", "better_than_STL_standard_error"]
        for protocol in self._there(record):
            entries = {**record[protocol.key], **record["baselines"].get(protocol.key, {})}
            cells: dict[str, list[str]] = {}
            for name, entry in entries.items():
                known = self._known(record, protocol, name)
                cells[name] = [self._cell(entry, known, k, name == "STL") for k in range(len(sizes))]
                for k, size in enumerate(sizes):
                    values = [entry[column][k] for column in columns]
                    rows.append([protocol.key, name, size, *values, known[self.score][k] if known else ""])
            shown = self.score + ("" if self.score == "nmse" else " (%)")
            beside = "; printed in brackets" if protocol.key == "results" and record["printed"] else ""
            repeats = len(next(iter(entries.values()))["repetitions"])
            title = f"{protocol.title}: {shown} ± standard deviation, {self.measure}{beside} ({repeats} repetitions)"
            paired = {name: self._paired(entry) for name, entry in entries.items() if name != "STL"}
            lines += [f"## {title}", "", *markdown("method", sizes, cells), ""]
            lines += ["Better than STL, paired over the repetitions ± standard error:", ""]
            lines += [*markdown("method", sizes, paired), ""]
        proof = record["certificates"]
        worst = max(entry["relative_gap"] for entry in proof.values() if isinstance(entry, dict))
        within = f"{'all' if proof['all_within_tolerance'] else 'NOT all'} within {TOLERANCE:g}"
        lines.append(f"Largest relative duality gap of the final fits: {worst:.1e} ({within}).")
        header = ["protocol", "method", "size", *columns[:4], "standard_error", "printed"]
        return "\n".join(lines), [header, *rows]

    def _there(self, record: dict[str, Any]) -> list[Protocol]:
        return [protocol for protocol in self.protocols.values() if protocol.key in record]

    def _known(self, record: dict[str, Any], protocol: Protocol, name: str) -> dict[str, list[float]]:
        """The printed numbers of a method; they are those of the first protocol, at the printed sizes."""
        comparable = protocol.key == "results" and record["settings"]["sizes"] == record["printed_sizes"]
        return record["printed"].get(name, {}) if comparable else {}

    def _text(self, value: float, sign: str = "") -> str:
        return f"{value:{sign}.4f}" if self.score == "nmse" else f"{100 * value:{sign}.2f}"

    def _cell(self, entry: dict[str, Any], known: dict[str, list[float]], k: int, single_task: bool) -> str:
        gain = "0" if single_task else self._text(entry[self.measure][k], "+")
        cell = f"{self._text(entry[self.score][k])} ± {self._text(entry[f'{self.score}_std'][k])}, {gain}"
        if known:
            improvement = f", {known['nI'][k]:+.4f}" if "nI" in known else ""
            cell += f" ({self._text(known[self.score][k])}{improvement})"
        return cell

    def _paired(self, entry: dict[str, Any]) -> list[str]:
        """How much better than single-task learning, on the same repetitions, with its standard error."""
        pairs = zip(entry["better_than_STL"], entry["better_than_STL_standard_error"], strict=True)
        return [f"{self._text(mean, '+')} ± {self._text(error)}" for mean, error in pairs]

    def draw(self, record: dict[str, Any], figure: Any) -> None:
        """A panel for each protocol: our means with bars of one standard deviation, printed values as open circles."""
        there = self._there(record)
        panels = figure.subplots(1, len(there), squeeze=False)[0]
        for panel, protocol in zip(panels, there, strict=True):
            for name, entry in record[protocol.key].items():
                values, deviations = entry[self.score], entry[f"{self.score}_std"]
                line = panel.errorbar(entry["sizes"], values, deviations, marker=".", capsize=2, label=name)
                known = self._known(record, protocol, name)
                if known:
                    panel.plot(entry["sizes"], known[self.score], "o", mfc="none", color=line.lines[0].get_color())
            panel.set(title=protocol.short or protocol.title, xlabel="training examples", ylabel=self.label)
        panels[0].legend(title="circles: printed", fontsize="small")


def markdown(corner: str, columns: list[Any], rows: dict[str, list[str]]) -> list[str]:
    """The lines of a table; each row begins with its name."""
    lines = [[corner, *map(str, columns)], *([name, *cells] for name, cells in rows.items())]
    head, *body = [f"| {' | '.join(line)} |" for line in lines]
    return [head, "|---" * (1 + len(columns)) + "|", *body]


def _deviation(values: Array) -> Array:
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])


def _worst(methods: list[str], results: list[dict[str, Any]]) -> dict[str, Any]:
    """The largest gaps of each method, the sum of its seconds, and whether all final fits are within the tolerance."""
    gaps = ("relative_gap", "relative_gap_in_folds")
    certificates = {
        name: {key: max(result[name][key] for result in results) for key in gaps}
        | {"seconds": round(sum(result[name]["seconds"] for result in results), 1)}
        for name in methods
    }
    within = all(entry["relative_gap"] <= TOLERANCE for entry in certificates.values())
    return {"all_within_tolerance": within, "tolerance": TOLERANCE} | certificates
