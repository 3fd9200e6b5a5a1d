"""``python -m taskloom.experiments NAME``: an experiment of the paper, ``corrections`` or ``variants``."""

from __future__ import annotations

import argparse

from . import EXPERIMENTS, errata, reproduce, sarcos_variants


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m taskloom.experiments", description=__doc__)
    parser.add_argument("name", choices=[*EXPERIMENTS, "corrections", "variants"])
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--output", help="folder for tables, plots and the record")
    parser.add_argument("--quick", action="store_true", help="at most two minutes")
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--jobs", type=int, help="processes")
    options = parser.parse_args()
    if options.name == "corrections":
        errata.show()
    elif options.name == "variants":
        sarcos_variants.show(options.data, options.repetitions or 10)
    else:
        how = {"repetitions": options.repetitions, "n_jobs": options.jobs}
        reproduce(options.name, options.data, options.output, options.quick, **how)


if __name__ == "__main__":
    main()
