"""Edits of language models: rotary positions, windows, norms, grouped heads, what config.json says of them."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation

HIDDEN: Final = "tests/models/test_parity.py::test_hidden_states_equal_the_reference"
LAYERS: Final = "tests/models/test_parity.py::test_every_layer_equals_the_reference"
BATCHES: Final = "tests/models/test_parity.py::test_a_batch_changes_nothing"
KEPT: Final = "tests/models/test_parity.py::test_kept_rows_are_the_rows_of_a_full_forward"
DECODERS: Final = "tests/models/test_decoders.py::"
CLASSIFY: Final = "tests/doors/test_llm_classify.py::"

ROPE: Final = (
    Mutation(
        "rotary base of the config ignored",
        "rope.py",
        'return Plain(size, says.number("rope_theta"))',
        "return Plain(size, 10_000.0)",
        (f"{HIDDEN}[gemma3_text]",),
    ),
    Mutation(
        "angles computed in the precision of the layers",
        "layers/rope.py",
        "packed.positions_T.float()[:, None] * self._of(packed.bounds, len(packed.positions_T))",
        "packed.positions_T.to(dtype)[:, None] * self._of(packed.bounds, len(packed.positions_T)).to(dtype)",
        ("tests/maths/test_rope.py::test_far_angles_are_those_of_the_reference_in_every_precision",),
    ),
    Mutation(
        "queries not turned",
        "layers/decoder.py",
        "query = turned(query, turn, self.q_norm, self.kernels)",
        "query = query",
        (f"{HIDDEN}[llama]",),
    ),
    Mutation(
        "neighbouring dimensions are pairs",
        "layers/rope.py",
        "left, right, rest = rows_THK.tensor_split((num_pairs, 2 * num_pairs), dim=-1)",
        "left, right, rest = rows_THK[..., : 2 * num_pairs : 2], rows_THK[..., 1 : 2 * num_pairs : 2], "
        "rows_THK[..., 2 * num_pairs :]",
        (f"{HIDDEN}[mistral]",),
    ),
    Mutation(
        "heads turn the other way",
        "layers/rope.py",
        "(left * cos - right * sin, right * cos + left * sin, rest)",
        "(left * cos + right * sin, right * cos + left * sin, rest)",
        (f"{HIDDEN}[qwen2]",),
    ),
    Mutation(
        "linear scaling left out",
        "layers/rope.py",
        "_over(along_F, rope.base) / rope.factor",
        "_over(along_F, rope.base)",
        (f"{HIDDEN}[llama-linear]",),
    ),
    Mutation(
        "dynamic base of the longest text of the batch",
        "layers/rope.py",
        "longest_T1 = length_T1.clamp(min=rope.trained_len)",
        "longest_T1 = length_T1.max().clamp(min=rope.trained_len).expand_as(length_T1)",
        (f"{HIDDEN}[llama-dynamic]",),
    ),
    Mutation(
        "dynamic base grows from the first token",
        "layers/rope.py",
        "longest_T1 = length_T1.clamp(min=rope.trained_len)",
        "longest_T1 = length_T1",
        (f"{HIDDEN}[llama-dynamic]",),
    ),
    Mutation(
        "long divisors from the trained length on",
        "layers/rope.py",
        "length_T1 > rope.trained_len",
        "length_T1 >= rope.trained_len",
        (f"{HIDDEN}[llama-longrope]",),
    ),
    Mutation(
        "gain of longrope left out",
        "layers/rope.py",
        "rope.gain if isinstance(rope, (Yarn, LongRope)) else 1.0",
        "rope.gain if isinstance(rope, Yarn) else 1.0",
        (f"{HIDDEN}[llama-longrope-gain]",),
    ),
    Mutation(
        "gain of yarn left out",
        "layers/rope.py",
        "rope.gain if isinstance(rope, (Yarn, LongRope)) else 1.0",
        "rope.gain if isinstance(rope, LongRope) else 1.0",
        (f"{HIDDEN}[qwen2-yarn]",),
    ),
    Mutation(
        "ramp of yarn always in whole numbers",
        "layers/rope.py",
        "    if rope.truncate:\n",
        "    if True:\n",
        (f"{HIDDEN}[qwen3-yarn]",),
    ),
    Mutation(
        "ramp of yarn reversed",
        "layers/rope.py",
        "left_alone_F = 1 - ((pairs_F",
        "left_alone_F = ((pairs_F",
        (f"{HIDDEN}[qwen2-yarn]",),
    ),
    Mutation(
        "middle waves of llama3 not smoothed",
        "layers/rope.py",
        "return torch.where(is_between_F, between_F, slow_F)",
        "return slow_F",
        (f"{HIDDEN}[llama-llama3]",),
    ),
    Mutation(
        "all of a head turned",
        "models/phi3.py",
        "size=int(head_size * part)",
        "size=head_size",
        (f"{HIDDEN}[phi3-longrope]",),
    ),
    Mutation(
        "one base for both kinds of layers",
        "models/gemma3_text.py",
        "ropes=tuple(ropes[kind] for kind in kinds)",
        'ropes=tuple(ropes["full_attention"] for kind in kinds)',
        (f"{HIDDEN}[gemma3_text]",),
    ),
    Mutation(
        "old keys of rotary positions ignored",
        "rope.py",
        'raw.get("rope_scaling") or raw.get("rope_parameters") or {}',
        'raw.get("rope_parameters") or {}',
        (f"{DECODERS}test_old_keys_say_what_the_new_ones_say[linear]",),
    ),
)

DECODER_BLOCKS: Final = (
    Mutation(
        "causal by habit",
        "models/llama.py",
        'causal=bool(raw["is_causal"])',
        "causal=True",
        (f"{HIDDEN}[llama-bidirectional]",),
    ),
    Mutation(
        "causal mask of a decoder off",
        "layers/decoder.py",
        "Rule(scale=self.scale, causal=self.causal,",
        "Rule(scale=self.scale, causal=False,",
        (f"{HIDDEN}[llama]",),
    ),
    Mutation(
        "causal window wider by one",
        "models/llama.py",
        "return window - 1 if causal else window",
        "return window",
        (f"{HIDDEN}[mistral-window]",),
    ),
    Mutation(
        "window both ways narrower by one",
        "models/llama.py",
        "return window - 1 if causal else window",
        "return window - 1",
        (f"{HIDDEN}[mistral-window-both-ways]",),
    ),
    Mutation(
        "window of gemma 3 both ways taken for a radius",
        "models/gemma3_text.py",
        "return window // 2 if",
        "return window if",
        (f"{HIDDEN}[gemma3-bidirectional]",),
    ),
    Mutation(
        "window forgotten where it just matters",
        "layers/attention.py",
        "rule.window < run.num_tokens - 1 else",
        "rule.window < run.num_tokens - 2 else",
        (f"{HIDDEN}[mistral-window]",),
    ),
    Mutation(
        "windows of qwen start a layer late",
        "models/qwen2.py",
        "far is None or number < first",
        "far is None or number <= first",
        (f"{DECODERS}test_older_files_do_not_list_the_kinds_of_their_layers[qwen2]",),
    ),
    Mutation(
        "windows of gemma 2 out of turn",
        "models/gemma2.py",
        "if (number + 1) % every == 0",
        "if number % every == 0",
        (f"{DECODERS}test_defaults_are_those_of_the_reference[gemma2]",),
    ),
    Mutation(
        "norm of keys left out",
        "layers/decoder.py",
        "turned(key, turn, self.k_norm, self.kernels)",
        "turned(key, turn, None, self.kernels)",
        (f"{HIDDEN}[qwen3]",),
    ),
    Mutation(
        "norms of queries and keys swapped",
        "layers/decoder.py",
        "turned(query, turn, self.q_norm, self.kernels)",
        "turned(query, turn, self.k_norm, self.kernels)",
        (f"{HIDDEN}[qwen3]",),
    ),
    Mutation(
        "grouped heads repeat in turns",
        "layers/attention.py",
        "    key, value = _keys(key_THK, run), _keys(value_THK, run)\n",
        "    share = query_QHK.shape[1] // key_THK.shape[1]\n"
        "    key, value = (_keys(part, run).repeat(1, share, 1, 1) for part in (key_THK, value_THK))\n",
        (f"{HIDDEN}[llama]",),
    ),
    Mutation(
        "grouped heads repeat in turns where scores are written out",
        "layers/attention.py",
        "key = _keys(key_THK, run).repeat_interleave(share, dim=1)",
        "key = _keys(key_THK, run).repeat(1, share, 1, 1)",
        (f"{HIDDEN}[gemma2]",),
    ),
    Mutation(
        "gate and up swapped",
        "layers/linear.py",
        "gate, up = self._gate_first(out, -1)",
        "up, gate = self._gate_first(out, -1)",
        (f"{HIDDEN}[qwen2]",),
    ),
    Mutation(
        "scale of the embeddings left out",
        "models/llama.py",
        "hidden_TD = hidden_TD * self._scale",
        "hidden_TD = hidden_TD * 1.0",
        (f"{HIDDEN}[gemma]",),
    ),
    Mutation(
        "scale of the embeddings not rounded",
        "models/llama.py",
        "dtype=self.words.weight.dtype, device",
        "dtype=torch.float32, device",
        (f"{DECODERS}test_the_scale_of_the_embeddings_has_the_precision_of_the_table",),
    ),
    Mutation(
        "norm weights of gemma without their 1",
        "models/gemma.py",
        "norm_offset=1.0",
        "norm_offset=0.0",
        (f"{HIDDEN}[gemma]",),
    ),
    Mutation(
        "soft cap of gemma 2 dropped",
        "models/gemma2.py",
        "shaped(softcap=softcap)",
        "shaped(softcap=None)",
        (f"{HIDDEN}[gemma2]",),
    ),
    Mutation(
        "scale of scores from the head size",
        "models/gemma2.py",
        "post_norms=True, scale=Raw(raw).size",
        "post_norms=True, scale=0 * Raw(raw).size",
        (f"{HIDDEN}[gemma2]",),
    ),
    Mutation(
        "norms after the halves swapped",
        "layers/decoder.py",
        "_normed(self.attention_post_norm, attended)",
        "_normed(self.inner_post_norm, attended)",
        (f"{HIDDEN}[gemma3_text]",),
    ),
    Mutation(
        "epsilon of root mean squares fixed",
        "models/llama.py",
        'norm_eps=config.number("rms_norm_eps")',
        "norm_eps=1e-6",
        (f"{HIDDEN}[phi3]",),
    ),
    Mutation(
        "last norm left out",
        "layers/decoder.py",
        "hidden_TD = self.norm(hidden_TD)",
        "hidden_TD = hidden_TD * 1.0",
        (f"{HIDDEN}[llama]",),
    ),
    Mutation(
        "layers of a decoder after the norm of the next",
        "layers/decoder.py",
        "                inner[number + 1] = hidden_TD",
        "                inner[number + 1] = self.norm(hidden_TD)",
        (f"{LAYERS}[llama]",),
    ),
    Mutation(
        "kept queries turned by the first positions",
        "layers/decoder.py",
        "turn.of_rows(rows_Q)\n",
        "turn.of_rows(0 * rows_Q)\n",
        (f"{KEPT}[llama-last]",),
    ),
    Mutation(
        "biases of llama ignored",
        "models/llama.py",
        "shaped(qkv_bias=bias, out_bias=bias, inner_bias=inner_bias)",
        "shaped(qkv_bias=bias, out_bias=bias)",
        (f"{HIDDEN}[llama-biased]",),
    ),
)

CONVERSION: Final = (
    Mutation(
        "a decoder pooled by its first token",
        "models/llama.py",
        'Nature(causal=True, pooled="last", ',
        "Nature(causal=True, ",
        (f"{DECODERS}test_without_modules_the_last_token_is_pooled_and_normalised",),
    ),
    Mutation(
        "a decoder classified by its first token",
        "models/llama.py",
        '(Stage("score", bias=None, row=row),)',
        '(Stage("score", bias=None),)',
        (f"{CLASSIFY}test_logits_equal_the_reference[llama-2]",),
    ),
    Mutation(
        "stored bias of a score left out",
        "layers/heads.py",
        'bias=f"{stage.name}.bias" in tensors',
        "bias=False",
        (f"{DECODERS}test_a_score_with_a_stored_bias_adds_it",),
    ),
    Mutation(
        "gemma stored in float16 run in it",
        "recipe.py",
        'if asked == "auto" and stored == "float16":',
        'if asked == "auto" and stored == "float64":',
        (f"{DECODERS}test_a_family_that_overflows_is_never_run_in_float16",),
    ),
)
