"""Benchmarks: Cenote beside its peers on real texts, and what starting and serving cost. Run `python -m bench --help`.

Modules that run in the peers' environment (`worker`, `subjects`, `exports`) import nothing of the others but this file.
"""
