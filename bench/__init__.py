"""Benchmarks: Cenote beside its peers on real texts, and what starting and serving cost. Run `python -m bench --help`.

Modules that run in the peers' environment (`worker`, `subjects`, `texts`, `exports`) import nothing but each other and
this file.
"""
