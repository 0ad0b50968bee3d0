"""Edits of what encoders beyond BERT compute."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .mutations_forward import HIDDEN, SUMS

DISENTANGLED: Final = (
    Mutation(
        "queries and keys swapped in distances",
        "layers/disentangled.py",
        "(query_nq[..., None] - key_k)",
        "(key_k - query_nq[..., None])",
        (f"{HIDDEN}[deberta-v2]",),
    ),
    Mutation(
        "log buckets rounded down",
        "layers/disentangled.py",
        "wide = torch.ceil(",
        "wide = torch.floor(",
        (f"{HIDDEN}[deberta-v2-far]",),
    ),
    Mutation(
        "the outermost bucket dropped",
        "models/deberta_v2.py",
        "2 * self.span - 1)",
        "2 * self.span - 2)",
        (f"{HIDDEN}[deberta-v2-far]",),
    ),
    Mutation(
        "distances of keys not scored",
        "layers/disentangled.py",
        "scores = met if scores is None else scores.add_(met)",
        "scores = met if scores is None else scores",
        (f"{HIDDEN}[deberta-v2]",),
    ),
    Mutation(
        "scale of two kinds of scores for one",
        "models/deberta_v2.py",
        "(1 + len(self.kinds))",
        "3",
        (f"{HIDDEN}[deberta-v2-c2p]",),
    ),
    Mutation(
        "distances not normalised",
        "models/deberta_v2.py",
        "            distances_RD = self.distance_norm(distances_RD)",
        "            distances_RD = distances_RD.detach()",
        (f"{HIDDEN}[deberta-v2]",),
    ),
    Mutation(
        "distances projected as the tokens are",
        "models/deberta_v2.py",
        "key = self.distance_key or self.qkv",
        "key = self.qkv",
        (f"{HIDDEN}[deberta-v2-own]",),
    ),
    Mutation(
        "every layer scores distances as the first",
        "models/deberta_v2.py",
        "[block.rule(distances_RD, rows) for block in blocks]",
        "[blocks[0].rule(distances_RD, rows)] * len(blocks)",
        (f"{HIDDEN}[deberta-v2]",),
    ),
    Mutation(
        "pieces of a run start at its start",
        "layers/attention.py",
        "run.key_start + first * run.key_len",
        "run.key_start",
        (SUMS,),
    ),
)
