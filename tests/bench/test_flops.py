"""FLOPs against counts made by hand."""

from __future__ import annotations

import json
from pathlib import Path

from bench.flops import Dims, text_flops, workload_flops


def test_one_layer_counted_by_hand() -> None:
    # D = 2, F = 3, n = 5 tokens. Query, key, value and output: 4 products of [5, 2] @ [2, 2], 5*2*2 multiply-adds each.
    # Feed-forward: [5, 2] @ [2, 3] and [5, 3] @ [3, 2]. Attention: [5, 2] @ [2, 5] and [5, 5] @ [5, 2].
    projections = 4 * 2 * (5 * 2 * 2)
    feed_forward = 2 * (5 * 2 * 3) + 2 * (5 * 3 * 2)
    attention = 2 * (5 * 2 * 5) + 2 * (5 * 5 * 2)
    assert text_flops(Dims(1, 2, 3), 5) == projections + feed_forward + attention == 480


def test_layers_and_texts_add_up() -> None:
    one = Dims(1, 384, 1536)
    six = Dims(6, 384, 1536)
    assert text_flops(six, 16) == 6 * text_flops(one, 16)
    assert workload_flops(six, [16, 177]) == text_flops(six, 16) + text_flops(six, 177)


def test_minilm_at_16_tokens() -> None:
    # 6 layers of 12 D D weights, two FLOPs per weight and token, and 4 n n D for attention.
    assert text_flops(Dims(6, 384, 1536), 16) == 6 * (2 * 16 * 12 * 384 * 384 + 4 * 16 * 16 * 384)


def test_sizes_come_from_the_config(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 6, "hidden_size": 384, "intermediate_size": 1536}
    (tmp_path / "config.json").write_text(json.dumps(config))
    dims = Dims.of_folder(tmp_path)
    assert dims == Dims(6, 384, 1536, query=384, key_value=384)
    assert sum(a * b for a, b in dims.gemm_shapes) == 12 * 384 * 384


def test_a_language_model_counted_by_hand() -> None:
    # D = 4, F = 3, queries of 6, keys and values of 2 each, n = 3 tokens that see 1, 2 and 3.
    dims = Dims(2, 4, 3, query=6, key_value=2, is_gated=True, is_causal=True)
    projections = 2 * 3 * (4 * (6 + 2 + 2) + 6 * 4)
    feed_forward = 2 * 3 * (4 * 3 + 4 * 3 + 3 * 4)
    attention = 2 * 2 * (1 + 2 + 3) * 6
    assert text_flops(dims, 3) == 2 * (projections + feed_forward + attention)


def test_a_window_counts_the_pairs_inside_it() -> None:
    # Of 5 tokens that see one to either side the inner three see 3, the outer two see 2.
    near, far = Dims(1, 2, 3, reaches=(1,)), Dims(1, 2, 3)
    assert text_flops(far, 5) - text_flops(near, 5) == 4 * 2 * (5 * 5 - (3 * 3 + 2 * 2))
    assert text_flops(Dims(1, 2, 3, reaches=(9,)), 5) == text_flops(far, 5)


def test_distances_add_two_products() -> None:
    # 5 tokens have 9 distances from -4 to 4; with room for 2 to either side there are 4.
    plain = text_flops(Dims(1, 2, 3), 5)
    assert text_flops(Dims(1, 2, 3, num_distances=256), 5) - plain == 2 * (2 * 5 * 9 * 2)
    assert text_flops(Dims(1, 2, 3, num_distances=2), 5) - plain == 2 * (2 * 5 * 4 * 2)


def test_layers_of_modernbert_that_see_near_ones_only(tmp_path: Path) -> None:
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    config = {"model_type": "modernbert", "num_hidden_layers": 3, "hidden_size": 8, "intermediate_size": 4}
    more = {"num_attention_heads": 2, "local_attention": 128, "layer_types": kinds}
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    assert Dims.of_folder(tmp_path).reaches == (None, 64, 64)
