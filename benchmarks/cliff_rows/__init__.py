"""The rows of ``benchmarks/cliffs.py --table``: problems that once cost far more than their neighbours, one file a subject."""
