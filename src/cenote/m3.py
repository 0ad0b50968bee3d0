"""What BGE-M3 keeps beside its backbone: weights of words, and vectors of tokens. No torch.

Source: Chen et al. 2024 (arXiv 2402.03216); files and rules are those of its makers' library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .checkpoint import Checkpoint
from .errors import CheckpointError, WeightMismatch
from .sparse import Sparse
from .steps import Dense, TokenWeights
from .tokenizer_files import read_files

if TYPE_CHECKING:
    from .models import ModelConfig

ARCHITECTURE = "BgeM3EmbeddingModel"
"""The name by which the reference asks for all three kinds of rows, through `hf_overrides`."""

WEIGHTS, VECTORS = "sparse_linear.pt", "colbert_linear.pt"
FILES = (WEIGHTS, VECTORS)

_UNWEIGHTED = ("cls_token", "eos_token", "pad_token", "unk_token")


class Beside(NamedTuple):
    """What is read beside a text's vector.

    Args:
        sparse: What makes its sparse row.
        vectors: What makes vectors of its tokens, all but the first.
    """

    sparse: Sparse
    vectors: Dense


def find(transformer: Checkpoint, words: Checkpoint, model: ModelConfig) -> Beside | None:
    """What lies beside a backbone, or None.

    Args:
        words: Files of its tokenizer.

    Raises:
        CheckpointError: One file lies there without the other.
        WeightMismatch: A file holds something else.
    """
    from . import weights

    hidden_size = model.hidden_size
    stored = [name for name in FILES if transformer.path(name) is not None]
    if not stored and ARCHITECTURE not in (transformer.config.get("architectures") or []):
        return None
    if len(stored) < len(FILES):
        raise CheckpointError(
            f"{transformer.name} has {stored or 'neither'} of {', '.join(FILES)}.",
            allowed="Both lie beside the backbone's weights.",
            fix="Fetch the checkpoint again.",
        )
    sizes = []
    for name in FILES:
        shapes = {part: tuple(tensor.shape) for part, tensor in weights.stored_file(transformer, name).items()}
        size = shapes.get("bias", (0,))[0]
        if shapes != {"weight": (size, hidden_size), "bias": (size,)}:
            raise WeightMismatch(f"{name} of {transformer.name} has {shapes}.", allowed="One linear layer.")
        sizes.append(size)
    files = read_files(words)
    named = [files.special_tokens[name] for name in _UNWEIGHTED if name in files.special_tokens]
    ids = {number for number in map(files.backend.id_of, named) if number is not None}
    vectors = Dense(hidden_size, sizes[1], activation="torch.nn.modules.linear.Identity", path=VECTORS, on="tokens")
    return Beside(Sparse(TokenWeights(hidden_size, tuple(sorted(ids)), WEIGHTS), model.vocab_size), vectors)
