"""All edits that `tests/mutations.py` tries, and the one that no test may notice."""

from __future__ import annotations

from typing import Final

from .mutation import Mutation
from .mutations_decoders import CONVERSION, DECODER_BLOCKS, ROPE
from .mutations_encoders import ADAPTED, BY_DISTANCE, DISENTANGLED
from .mutations_families import BOTH_WAYS, CONVOLVED, LISTWISE, MERGED, PACKED, VALUES
from .mutations_forward import ATTENTION, BLOCKS, EMBEDDINGS, PREFIXES
from .mutations_heads import CLASSIFIERS, SCORING, TOKEN_ROWS
from .mutations_reading import READING, WEIGHTS
from .mutations_rotary import ROTARY

MUTATIONS: Final = (
    *EMBEDDINGS,
    *BLOCKS,
    *ATTENTION,
    *DISENTANGLED,
    *BY_DISTANCE,
    *ADAPTED,
    *ROPE,
    *DECODER_BLOCKS,
    *CONVERSION,
    *PACKED,
    *BOTH_WAYS,
    *CONVOLVED,
    *MERGED,
    *LISTWISE,
    *VALUES,
    *ROTARY,
    *READING,
    *WEIGHTS,
    *CLASSIFIERS,
    *TOKEN_ROWS,
    *SCORING,
    *PREFIXES,
)

CONTROL: Final = Mutation(
    "control: only a comment changes",
    "layers/blocks.py",
    '"""One layer; normalises after each addition."""',
    '"""One layer; normalises after each addition, as it should."""',
)
"""What no test may notice; run with the guards of all mutations."""
