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
    assert dims == Dims(6, 384, 1536)
    assert sum(a * b for a, b in dims.gemm_shapes) == 12 * 384 * 384
