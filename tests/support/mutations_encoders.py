"""Edits of what encoders beyond BERT compute."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .mutations_forward import HIDDEN, LAYERS, SUMS

ADAPTERS: Final = "tests/models/test_adapters.py::test_each_text_is_read_with_its_adapter"

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
        "run.key_start + first * run.num_tokens",
        "run.key_start",
        (SUMS,),
    ),
)

BY_DISTANCE: Final = (
    Mutation(
        "slopes of other powers of two",
        "layers/alibi.py",
        "for number in range(1, whole + 1)]",
        "for number in range(whole)]",
        (f"{HIDDEN}[jina_bert]",),
    ),
    Mutation(
        "slopes between powers of two off by one",
        "layers/alibi.py",
        "range(1, 2 * whole, 2)",
        "range(2, 2 * whole, 2)",
        (f"{HIDDEN}[jina_bert]",),
    ),
    Mutation(
        "earlier keys fall, later ones rise",
        "layers/alibi.py",
        "(key_k - query[..., None]).abs_()",
        "(key_k - query[..., None])",
        (f"{HIDDEN}[jina_bert-reglu]",),
    ),
    Mutation(
        "the other half of the feed-forward activated",
        "models/jina_bert.py",
        "gate_first=not norms",
        "gate_first=norms",
        (f"{HIDDEN}[jina_bert-normed]",),
    ),
    Mutation(
        "the second norm of the attention left out",
        "models/jina_bert.py",
        "self.second_norm.forward(super().added(attended_QD, hidden_QD), hidden_QD)",
        "super().added(attended_QD, hidden_QD)",
        (f"{HIDDEN}[jina_bert-normed-original]",),
    ),
    Mutation(
        "T5 scales its scores",
        "models/t5.py",
        "Rule(scale=1.0, bias",
        "Rule(bias",
        (f"{HIDDEN}[t5]",),
    ),
    Mutation(
        "every layer of UMT5 has the bias of the first",
        "models/t5.py",
        "rules if len(rules) == num_layers else rules * num_layers",
        "rules[:1] * num_layers",
        (f"{HIDDEN}[umt5]",),
    ),
    Mutation(
        "a gelu gate that is exact",
        "models/t5.py",
        '"gelu_new" if named == "gated-gelu"',
        '"gelu" if named == "gated-gelu"',
        (f"{HIDDEN}[mt5]",),
    ),
    Mutation(
        "the residual of T5 normalised",
        "models/t5.py",
        "self.norm.of_sum(hidden_TD if",
        "self.norm.of_sum(self.attention_norm(hidden_TD) if",
        (f"{HIDDEN}[t5]",),
    ),
    Mutation(
        "the last norm of T5 not among its layers",
        "models/t5.py",
        "last_QD if number == num_layers else rows",
        "rows",
        (f"{LAYERS}[t5]",),
    ),
)

ADAPTED: Final = (
    Mutation(
        "the scale of adapters left out",
        "layers/adapters.py",
        "(adapters_T[:, None] == numbers) * self.scale",
        "(adapters_T[:, None] == numbers) * 1.0",
        (ADAPTERS,),
    ),
    Mutation(
        "kept rows take the adapters of the first rows",
        "layers/blocks.py",
        "self.chosen[rows_Q]",
        "self.chosen[: len(rows_Q)]",
        (ADAPTERS,),
    ),
    Mutation(
        "the feed-forward takes no adapter",
        "layers/blocks.py",
        "self.inner(hidden_QD, own_Q.chosen)",
        "self.inner(hidden_QD)",
        (ADAPTERS,),
    ),
    Mutation(
        "tables take no adapter",
        "models/bert.py",
        "self.embeddings(packed, positions_T, chosen)",
        "self.embeddings(packed, positions_T)",
        (ADAPTERS,),
    ),
    Mutation(
        "adapters added after the activation",
        "layers/linear.py",
        "        out = self._product(x, None)\n",
        "        out = self._product(x, self.activation if self.gate is None else None)\n",
        (ADAPTERS,),
    ),
)
