"""Finite features of kernels: ``Phi`` with ``K = Phi Phi'``, exact or approximate."""
