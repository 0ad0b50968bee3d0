"""Edits of what a forward computes: embeddings, blocks, attention."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation

HIDDEN: Final = "tests/models/test_parity.py::test_hidden_states_equal_the_reference"
BATCHES: Final = "tests/models/test_parity.py::test_a_batch_changes_nothing"
LAYERS: Final = "tests/models/test_parity.py::test_every_layer_equals_the_reference"
KEPT: Final = "tests/models/test_parity.py::test_kept_rows_are_the_rows_of_a_full_forward"
SUMS: Final = "tests/maths/test_attention.py::test_attention_equals_the_sums"
SHARED: Final = "tests/models/test_shared_prefixes.py"
SHARES: Final = "tests/machine/test_prefixes.py"

EMBEDDINGS = (
    Mutation(
        "positions off by one",
        "models/bert.py",
        "        return packed.positions_T",
        "        return (packed.positions_T - 1).clamp(min=0)",
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "positions run on over sequences",
        "layers/packed.py",
        "np.arange(len(ids), dtype=np.int32) - bounds[:-1].repeat(lengths)",
        "np.arange(len(ids), dtype=np.int32) % 70",
        (f"{BATCHES}[bert]",),
    ),
    Mutation(
        "segments dropped",
        "layers/embeddings.py",
        "(first_D if packed.segments_T is None else self.segments(packed.segments_T))",
        "first_D",
        (f"{HIDDEN}[electra]",),
    ),
    Mutation(
        "segment 0 not added where none are given",
        "layers/embeddings.py",
        "first_D = self.segments.weight[0]",
        "first_D = 0 * self.segments.weight[0]",
        ("tests/models/test_parity.py::test_no_segments_are_segments_of_zeros",),
    ),
    Mutation(
        "rows of products keep their means",
        "layers/tables.py",
        "(rows - rows.mean(1, keepdim=True)).float()",
        "rows.float()",
        ("tests/maths/test_tables.py::test_hidden_states_are_the_same",),
    ),
    Mutation(
        "the bias of the norm is not multiplied",
        "layers/tables.py",
        "bias_N = bias_N + weight.double() @ norm.bias.double()",
        "bias_N = bias_N + norm.bias.double().sum()",
        ("tests/maths/test_tables.py::test_hidden_states_are_the_same",),
    ),
    Mutation(
        "position offset of padding ids",
        "models/roberta.py",
        "(count_T - before_T) * real_T + pad",
        "(count_T - before_T) * real_T + pad - 1",
        (f"{HIDDEN}[camembert]",),
    ),
    Mutation(
        "padding tokens advance positions",
        "models/roberta.py",
        "real_T = (packed.ids_T != pad).to(torch.int32)",
        "real_T = torch.ones_like(packed.ids_T)",
        (f"{HIDDEN}[xlm-roberta]",),
    ),
    Mutation(
        "padding positions counted over the batch",
        "models/roberta.py",
        "before_T = (count_T - real_T)[first_T]",
        "before_T = 0 * first_T",
        (f"{HIDDEN}[roberta]",),
    ),
    Mutation(
        "padding id of mpnet read from the config",
        "models/mpnet.py",
        '{**raw, "pad_token_id": _PAD_ID}',
        "raw",
        (f"{HIDDEN}[mpnet-other-pad]",),
    ),
    Mutation(
        "padding id of roberta fixed",
        "models/roberta.py",
        "        pad = self.config.pad_id",
        "        pad = 1",
        (f"{HIDDEN}[roberta-other-pad]",),
    ),
    Mutation(
        "electra's projection left out",
        "models/bert.py",
        "hidden_TD = self.project(hidden_TD)",
        "hidden_TD = nn.functional.pad(hidden_TD, (0, self.config.hidden_size - hidden_TD.shape[1]))",
        (f"{HIDDEN}[electra-projected]",),
    ),
)

BLOCKS = (
    Mutation(
        "gelu becomes its tanh approximation",
        "hf.py",
        '"gelu": "gelu",',
        '"gelu": "gelu_tanh",',
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "tanh approximation becomes gelu",
        "hf.py",
        '"gelu_new": "gelu_tanh",',
        '"gelu_new": "gelu",',
        (f"{HIDDEN}[bert-gelu_new]",),
    ),
    Mutation(
        "layer norm epsilon a thousand times larger",
        "models/bert.py",
        'config.number("layer_norm_eps", 1e-12)',
        '1000 * config.number("layer_norm_eps", 1e-12)',
        (f"{HIDDEN}[roberta]",),
    ),
    Mutation(
        "layer norm epsilon of distilbert taken from torch",
        "models/distilbert.py",
        "_NORM_EPS = 1e-12",
        "_NORM_EPS = 1e-5",
        (f"{HIDDEN}[distilbert]",),
    ),
    Mutation(
        "layer norm epsilon of the config ignored",
        "models/bert.py",
        'config.number("layer_norm_eps", 1e-12)',
        "1e-12",
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "normalised before the addition",
        "layers/blocks.py",
        "self.attention_norm.forward(attended_QD, hidden_QD)",
        "self.attention_norm.forward(attended_QD).add_(hidden_QD)",
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "the two norms of a block swapped",
        "layers/blocks.py",
        "return self.norm.forward(self.inner",
        "return self.attention_norm.forward(self.inner",
        (f"{HIDDEN}[mpnet]",),
    ),
    Mutation(
        "residual around the feed-forward lost",
        "layers/blocks.py",
        "self.inner(hidden_QD, own_Q.chosen), hidden_QD)",
        "self.inner(hidden_QD, own_Q.chosen))",
        (f"{HIDDEN}[distilbert]",),
    ),
    Mutation(
        "query and key swapped",
        "layers/blocks.py",
        "query, key, value = (part",
        "key, query, value = (part",
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "last layer skipped",
        "layers/blocks.py",
        "zip(self.blocks[begun:], rules[begun:], strict=True)",
        "zip(self.blocks[begun:-1], rules[begun:-1], strict=True)",
        (f"{HIDDEN}[electra]",),
    ),
    Mutation(
        "numbers of layers off by one",
        "layers/blocks.py",
        "                inner[number + 1] = hidden_TD",
        "                inner[number + 1] = block(hidden_TD, packed.bounds, of_layer, None, own)",
        (f"{LAYERS}[bert]",),
    ),
    Mutation(
        "kept rows get the residual of others",
        "layers/blocks.py",
        "hidden_TD if rows_Q is None else hidden_TD[rows_Q])",
        "hidden_TD if rows_Q is None else hidden_TD[: len(rows_Q)])",
        (f"{KEPT}[bert-last]",),
    ),
    Mutation(
        "kept rows get the keys of the queries",
        "layers/blocks.py",
        "self.qkv.only(query), self.qkv.only(*others)",
        "self.qkv.only(query), self.qkv.only(query, others[0])",
        (f"{KEPT}[roberta-first]",),
    ),
)

ATTENTION = (
    Mutation(
        "attention scale",
        "layers/attention.py",
        "is_causal=rule.causal, scale=rule.scale",
        "is_causal=rule.causal, scale=1.01 * (rule.scale or query_QHK.shape[2] ** -0.5)",
        (f"{HIDDEN}[bert]",),
    ),
    Mutation(
        "attention scale under a mask",
        "layers/attention.py",
        "attn_mask=mask, scale=rule.scale",
        "attn_mask=mask, scale=1.01 * (rule.scale or query_QHK.shape[2] ** -0.5)",
        (SUMS,),
    ),
    Mutation(
        "attention scale where scores are written out",
        "layers/attention.py",
        "query_QHK.shape[2] ** -0.5 if rule.scale is None",
        "query_QHK.shape[2] ** -0.49 if rule.scale is None",
        (SUMS,),
    ),
    Mutation("window wider by one", "layers/attention.py", "> rule.window", "> rule.window + 1", (SUMS,)),
    Mutation("window narrower by one", "layers/attention.py", "> rule.window", ">= rule.window", (SUMS,)),
    Mutation("causal mask lets one later key in", "layers/attention.py", "away_nqk < 0", "away_nqk < -1", (SUMS,)),
    Mutation(
        "causal mask off",
        "layers/attention.py",
        "query, key, value, is_causal=rule.causal",
        "query, key, value, is_causal=False",
        (SUMS,),
    ),
    Mutation(
        "sequences of a run see each other",
        "layers/attention.py",
        "    outs = [",
        "    rows = Run(0, 0, 1, len(query_QHK), len(key_THK), len(key_THK))\n"
        "    bounds = Bounds(bounds.query_S1, bounds.key_S1, bounds.query_index_Q, (rows,))\n"
        "    outs = [",
        (f"{BATCHES}[bert]",),
    ),
    Mutation(
        "soft cap off",
        "layers/attention.py",
        "scores = rule.softcap * torch.tanh(scores / rule.softcap)",
        "scores = scores * 1.0",
        (SUMS,),
    ),
    Mutation(
        "query blocks start at 0",
        "layers/attention.py",
        "torch.arange(start + run.query_offset, stop + run.query_offset, device=device)[None]",
        "torch.arange(0, stop - start, device=device)[None]",
        (SUMS,),
    ),
    Mutation(
        "kept queries take the first positions",
        "layers/attention.py",
        ".view(run.num_seqs, run.query_len)[:, start:stop]",
        ".view(run.num_seqs, run.query_len)[:, start:stop] * 0",
        (SUMS,),
    ),
    Mutation(
        "mpnet's bias left out", "models/mpnet.py", "Rule(bias=self.relative.between)", "Rule()", (f"{HIDDEN}[mpnet]",)
    ),
    Mutation(
        "mpnet's buckets off by one",
        "layers/relative.py",
        "wide = (near + growth",
        "wide = (near + 1 + growth",
        (f"{HIDDEN}[mpnet]",),
    ),
    Mutation(
        "mpnet's buckets mirrored",
        "layers/relative.py",
        "(key_k - query[..., None])",
        "(query[..., None] - key_k)",
        (f"{HIDDEN}[mpnet]",),
    ),
    Mutation("mpnet's far distance halved", "models/mpnet.py", "_FAR = 128", "_FAR = 64", (f"{HIDDEN}[mpnet-far]",)),
)
PREFIXES = (
    Mutation(
        "positions behind a shared beginning start anew",
        "layers/packed.py",
        "positions, num_own = positions[own]",
        "positions, num_own = positions[own] % 9",
        (SHARED,),
    ),
    Mutation(
        "queries behind a shared beginning look from its start",
        "layers/packed.py",
        "return self.num_tokens - self.query_len",
        "return 0",
        (SHARED,),
    ),
    Mutation(
        "a window behind a shared beginning lies at its start",
        "layers/attention.py",
        "    start, stop = start + run.query_offset, stop + run.query_offset\n",
        "",
        (SHARED,),
    ),
    Mutation(
        "kept rows are counted over all tokens",
        "layers/packed.py",
        "else batch.rows[rows_Q]",
        "else rows_Q.clip(max=batch.rows.max())",
        (SHARED,),
    ),
    Mutation(
        "computed rows are read as those of all tokens",
        "runner.py",
        "batch.bounds if packed.kept is None",
        "packed.bounds.query_S1.numpy() if packed.kept is None",
        (SHARED,),
    ),
    Mutation(
        "a beginning is that of the batch's first text",
        "prefixes.py",
        "rows_T[first : first + num]",
        "rows_T[:num]",
        (SHARES,),
    ),
    Mutation("the last token of a text is shared", "prefixes.py", "len(text) - 1)", "len(text))", (SHARES,)),
    Mutation("segments do not tell beginnings apart", "prefixes.py", "<< 32", ">> 32", (SHARES,)),
    Mutation(
        "angles that depend on the length are shared",
        "models/llama.py",
        "for rope in shape.ropes)\n        return",
        "for rope in ())\n        return",
        (SHARED,),
    ),
)
