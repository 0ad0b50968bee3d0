"""Edits of the encoders with rotary positions, and the tests that must notice them."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation

HIDDEN: Final = "tests/models/test_parity.py::test_hidden_states_equal_the_reference"
KEPT: Final = "tests/models/test_parity.py::test_kept_rows_are_the_rows_of_a_full_forward"
OWN: Final = "tests/models/test_rotary.py::"
SUMS: Final = "tests/maths/test_attention.py::test_attention_equals_the_sums"
EXPERTS: Final = (f"{OWN}test_experts_biases_and_plain_feed_forwards",)

ROTARY: Final = (
    Mutation(
        "first key of a window left out",
        "layers/attention.py",
        "max(0, start - rule.window)",
        "max(0, start - rule.window + 1)",
        (SUMS,),
    ),
    Mutation(
        "last key of a window left out",
        "layers/attention.py",
        "else stop + rule.window",
        "else stop + rule.window - 1",
        (SUMS,),
    ),
    Mutation(
        "window of modernbert taken for a radius",
        "models/modernbert.py",
        'config.size("local_attention", 128) // 2',
        'config.size("local_attention", 128)',
        (f"{HIDDEN}[modernbert]",),
    ),
    Mutation(
        "one base for all layers of modernbert",
        "models/modernbert.py",
        "ropes=tuple(ropes[kind] for kind in kinds)",
        "ropes=(ropes[kinds[0]],) * len(kinds)",
        (f"{HIDDEN}[modernbert]",),
    ),
    Mutation(
        "layers of modernbert out of turn",
        "models/modernbert.py",
        "_NEAR if number % every else _FULL",
        "_NEAR if (number + 1) % every else _FULL",
        (f"{OWN}test_old_keys_of_modernbert_say_what_the_new_ones_say[turns]",),
    ),
    Mutation(
        "means of rows not subtracted in modernbert's norms",
        "models/modernbert.py",
        "layer_norm=True",
        "layer_norm=False",
        (f"{HIDDEN}[modernbert]",),
    ),
    Mutation(
        "norm of modernbert's head left out",
        "layers/heads.py",
        "            rows = stage(rows)",
        "            rows = rows if isinstance(stage, nn.LayerNorm) else stage(rows)",
        (f"{OWN}test_heads_of_modernbert[mean]",),
    ),
    Mutation(
        "modernbert always classified by its first token",
        "models/modernbert.py",
        'return "mean" if named == "mean" else "first"',
        'return "first"',
        (f"{OWN}test_heads_of_modernbert[mean]",),
    ),
    Mutation(
        "queries of encoders not turned",
        "layers/blocks.py",
        "query = turned(query, own_Q.turn, None, self.kernels)",
        "query = query",
        (f"{HIDDEN}[gte]",),
    ),
    Mutation(
        "kept queries of encoders turned as the first ones",
        "layers/blocks.py",
        "turn.of_rows(rows_Q)",
        "turn.of_rows(rows_Q * 0)",
        (f"{KEPT}[gte-last]",),
    ),
    Mutation(
        "up and gate swapped in encoders",
        "layers/blocks.py",
        '("gate", "up") if shape.gate_first else ("up", "gate")',
        '("up", "gate") if shape.gate_first else ("gate", "up")',
        (f"{HIDDEN}[nomic_bert]",),
    ),
    Mutation(
        "gates of encoders stored in the other order",
        "layers/linear.py",
        "(first, second) if next(iter(self.parts)) == self.gate",
        "(first, second) if next(iter(self.parts)) != self.gate",
        (f"{HIDDEN}[gte]",),
    ),
    Mutation(
        "ntk with a larger base alone",
        "models/gte.py",
        '"factor": factor ** (2 / size)}',
        '"factor": 1.0}',
        (f"{HIDDEN}[new]",),
    ),
    Mutation(
        "gates of nomic in any size",
        "models/nomic_bert.py",
        "_up_to_multiple(size, _GATE_MULTIPLE) if gated else size",
        "size",
        (f"{OWN}test_the_makers_keys_of_nomic_say_what_those_of_transformers_say",),
    ),
    Mutation(
        "experts in the layers before",
        "models/nomic_bert.py",
        "number % every == 1",
        "number % every == 0",
        EXPERTS,
    ),
    Mutation(
        "shares of the chosen experts sum to 1",
        "layers/experts.py",
        "shares_Tk[tokens, places, None]",
        "(shares_Tk / shares_Tk.sum(-1, keepdim=True))[tokens, places, None]",
        EXPERTS,
    ),
    Mutation(
        "bias of experts left out",
        "layers/experts.py",
        "summed_TD.add_(self.bias)",
        "summed_TD",
        EXPERTS,
    ),
    Mutation(
        "layers stored whole and in parts pass",
        "weights.py",
        "(target, *slots[target].parts)):\n",
        "(target,)):\n",
        (f"{OWN}test_layers_that_lie_whole_and_in_parts_stop_the_start",),
    ),
)
