"""A module of `transformers` on packed batches: groups of exactly equal length, never padded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import CheckpointError
from ..layers.blocks import Hidden
from ..layers.packed import Packed, Run
from .classes import Kind, takes


class Model:
    """Packed batches to hidden states, or to the logits of texts or of tokens.

    The logits of a text are the one row that is kept of it; those of tokens stand where hidden states would. So the
    tasks read them as they read those of any model, and the classifier after it has no layer.

    Args:
        module: Of transformers, loaded.
        kind: What it gives.
        row_size: Values of a row: `D`, or the number of labels.
        gives_segments: Whether it is given segment ids.
    """

    def __init__(self, module: Any, kind: Kind, row_size: int, *, gives_segments: bool) -> None:
        self._module, self._kind, self._row_size = module, kind, row_size
        self._gives_segments = gives_segments
        self._masks = takes(module, "attention_mask")
        config = module.config
        # Such classifiers look at how many ends or paddings the other texts of a group have.
        looks_around = config.is_encoder_decoder or config.pad_token_id is None
        self._alone = kind == "sequence" and looks_around
        self._turn = threading.Lock() if _rewrites_itself(module) else contextlib.nullcontext()

    def __call__(self, packed: Packed) -> Hidden:
        """One call of the module for each run of texts of equal length.

        Raises:
            CheckpointError: The module gives no rows of these texts, or takes no mask and some tokens are not attended.
        """
        assert packed.adapters_T is None
        assert packed.embeds_TD is None
        rows: list[Tensor] = []
        layers: dict[int, list[Tensor]] = {number: [] for number in packed.layers}
        for run in self._groups(packed.bounds.runs):
            with self._turn:
                out = self._module(**self._arguments(packed, run))
            rows.append(self._rows(out, run))
            for number, found in layers.items():
                # `hidden_states` may end before a normalisation that the last hidden state has behind it.
                if number < len(out.hidden_states) - 1:
                    found.append(self._of_tokens(out.hidden_states[number], run))
                elif number == len(out.hidden_states) - 1:
                    found.append(rows[-1])
        inner = {number: torch.cat(found) for number, found in layers.items() if found}
        joined = torch.cat(rows)
        return Hidden(joined if self._kind == "sequence" else packed.of_kept(joined), inner)

    def _groups(self, runs: tuple[Run, ...]) -> Iterator[Run]:
        for run in runs:
            if not self._alone:
                yield run
                continue
            for number in range(run.num_seqs):
                yield run._replace(key_start=run.key_start + number * run.num_tokens, num_seqs=1)

    def _arguments(self, packed: Packed, run: Run) -> dict[str, Any]:
        rows = slice(run.key_start, run.key_start + run.num_seqs * run.num_tokens)
        shape = (run.num_seqs, run.num_tokens)
        ids_nL = packed.ids_T[rows].long().view(shape)
        given: dict[str, Any] = {"input_ids": ids_nL, "return_dict": True}
        if self._gives_segments:
            segments_T = packed.segments_T
            given["token_type_ids"] = (
                torch.zeros_like(ids_nL) if segments_T is None else segments_T[rows].long().view(shape)
            )
        if packed.layers:
            given["output_hidden_states"] = True
        if self._masks:
            # Ones, where all is attended: without a mask, some classes warn of paddings that are not there.
            mask_L = torch.arange(run.num_tokens, device=ids_nL.device) < run.key_len
            given["attention_mask"] = mask_L.long().expand(shape)
        elif run.key_len < run.num_tokens:
            raise CheckpointError(f"{type(self._module).__name__} of transformers cannot leave tokens unattended.")
        return given

    def _rows(self, out: Any, run: Run) -> Tensor:
        if self._kind == "embed":
            return self._of_tokens(getattr(out, "last_hidden_state", None), run)
        return self._of_tokens(out.logits, run) if self._kind == "token" else out.logits.view(-1, self._row_size)

    def _of_tokens(self, found: Tensor | None, run: Run) -> Tensor:
        shape = (run.num_seqs, run.num_tokens, self._row_size)
        if found is None or tuple(found.shape) != shape:
            given = "nothing" if found is None else list(found.shape)
            raise CheckpointError(
                f"{type(self._module).__name__} of transformers gives {given} for each token, not {list(shape)}.",
                allowed="One row for each token of a text, of the size that config.json says.",
                param="model",
            )
        return found.flatten(0, 1)


def _rewrites_itself(module: nn.Module) -> bool:
    """Whether a forward changes what the next one finds, as rotary positions that grow with a text do."""
    kinds = (getattr(part, "rope_type", None) for part in module.modules())
    return any("longrope" in (kind.values() if isinstance(kind, dict) else (kind,)) for kind in kinds if kind)
