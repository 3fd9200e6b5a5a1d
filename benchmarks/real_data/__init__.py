"""Real data sets, the methods that users pick instead, and scores in the field's definitions, for ``real.py``."""
