"""Edits of what stands around a forward: pooling and modules, cutting, loading."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation

LOADING: Final = "tests/models/test_loading.py::"
ROWS: Final = "tests/meaning/test_modules.py::test_rows_equal_the_reference"
PROMPTS: Final = "tests/meaning/test_modules.py::test_a_prompt_is_left_out_of_the_pooling"
CUT: Final = "tests/meaning/test_tokenizer.py::test_cut_inputs_equal_the_reference"

READING = (
    Mutation(
        "cls pooled as mean",
        "modules/readers.py",
        '"pooling_mode_cls_token": "cls",',
        '"pooling_mode_cls_token": "mean",',
        (f"{ROWS}[cls-old-alone]",),
    ),
    Mutation(
        "first token left out of the pooling",
        "layers/pooling.py",
        "np.minimum(edges[0] + skip_S, edges[2], out=edges[1])",
        "np.minimum(edges[0] + 1, edges[2], out=edges[1])",
        (f"{ROWS}[mean-new-alone]",),
    ),
    Mutation(
        "last token left out of the pooling",
        "layers/pooling.py",
        "edges[0], edges[2] = bounds[:-1], bounds[1:]",
        "edges[0], edges[2] = bounds[:-1], bounds[1:] - 1",
        (f"{ROWS}[mean-new-alone]",),
    ),
    Mutation(
        "mean_sqrt_len divides by the length",
        "layers/pooling.py",
        "spans.counts().sqrt()",
        "spans.counts()",
        (f"{ROWS}[mean_sqrt_len_tokens-new-alone]",),
    ),
    Mutation(
        "weights of weightedmean start at 0",
        "layers/pooling.py",
        "(spans.index_Q + 1)",
        "spans.index_Q",
        (f"{ROWS}[weightedmean-new-alone]",),
    ),
    Mutation(
        "a skipped prompt is pooled",
        "runner.py",
        'np.where([which == "all" for which in wanted], batch.skip, 0)',
        'np.where([which == "none" for which in wanted], batch.skip, 0)',
        (PROMPTS,),
    ),
    Mutation(
        "modes side by side in another order",
        "layers/heads.py",
        "[find_pooling(mode) for mode in step.modes]",
        "[find_pooling(mode) for mode in sorted(step.modes)]",
        ("tests/meaning/test_modules.py::test_several_modes_stand_side_by_side",),
    ),
    Mutation(
        "activation of Dense dropped",
        "layers/heads.py",
        "self.activation(self.linear(rows_SD))",
        "self.linear(rows_SD)",
        (f"{ROWS}[mean-new-then Dense]",),
    ),
    Mutation(
        "bias of Dense dropped",
        "layers/heads.py",
        "parameter.copy_(stored.float())",
        'parameter.copy_(stored.float() * (name != "linear.bias"))',
        (f"{ROWS}[mean-old-then Dense]",),
    ),
    Mutation(
        "Normalize skipped",
        "pooler.py",
        "        found = listed[:-1] if normalize else listed\n",
        "        found, normalize = listed[:-1] if normalize else listed, False\n",
        (f"{ROWS}[mean-new-then Normalize]",),
    ),
    Mutation(
        "the wrong end is cut", "tokenizer.py", "draft.coded, limit, side,", 'draft.coded, limit, "right",', (CUT,)
    ),
    Mutation(
        "the wrong end of ids is cut",
        "tokenizer.py",
        'if side == "right" else ids[num_cut:]',
        'if side == "left" else ids[num_cut:]',
        ("tests/meaning/test_tokenizer.py::test_ids_are_taken_as_they_are",),
    ),
)

WEIGHTS = (
    Mutation(
        "tensors without a use are let through",
        "weights.py",
        "                audit.unused.append(stored)",
        "                audit.unused.clear()",
        (f"{LOADING}test_weights_that_do_not_fit_stop_the_start",),
    ),
    Mutation(
        "parameters without a tensor are let through",
        "weights.py",
        "sorted(needed - audit.filled), name",
        "[], name",
        (f"{LOADING}test_weights_that_do_not_fit_stop_the_start",),
    ),
    Mutation(
        "tensors stored twice are let through",
        "weights.py",
        "            audit.twice.append(stored)",
        "            audit.twice.clear()",
        (f"{LOADING}test_weights_that_do_not_fit_stop_the_start",),
    ),
    Mutation(
        "quantised tensors are let through",
        "weights.py",
        "tensor.dtype not in _PLAIN_DTYPES",
        "tensor.dtype is None",
        (f"{LOADING}test_weights_that_do_not_fit_stop_the_start",),
    ),
    Mutation(
        "mapped weights are copied",
        "weights.py",
        "value = tensor.to(device=device, dtype=dtype)",
        "value = tensor.to(device=device, dtype=dtype, copy=True)",
        (f"{LOADING}test_weights_in_the_wanted_precision_stay_in_their_file",),
    ),
    Mutation(
        "relative positions are let through",
        "models/bert.py",
        '    "position_embedding_type": "absolute",\n',
        "",
        (f"{LOADING}test_what_a_config_says_and_we_do_not_do_stops_the_start",),
    ),
)
