"""Fields that several requests and responses share, with their JSON Schema."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

TextsOrIds: TypeAlias = Annotated[
    str | list[str | int | list[int]],
    Meta(description="A text, a list of texts, token ids, or a list of lists of token ids; a list is not empty."),
]
NotServed: TypeAlias = Annotated[msgspec.Raw, Meta(description="Refused by name unless it is null or empty.")]

Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
TokenId: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]

TruncateTokens: TypeAlias = Annotated[
    int,
    Meta(
        ge=-1,
        le=2**63 - 1,
        description="Cut longer inputs to this many tokens; -1 is the model's limit. Unset, longer inputs are refused.",
    ),
]
TruncationSide: TypeAlias = Annotated[Literal["left", "right"], Meta(description="The end that is cut off.")]
Padding: TypeAlias = Annotated[
    Literal["max_length", "do_not_pad"],
    Meta(
        description="Accepted and without effect: nothing is ever padded here, the vector is that of the text alone, "
        "and usage counts its own tokens."
    ),
]
CacheSalt: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[^@/\\\x00]*$", description="Accepted and without effect.")
]


class Usage(Struct, kw_only=True):
    """Tokens of the inputs after cutting, special tokens included."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0] = 0
    prompt_tokens_details: None = None
    completion_tokens_details: None = None


def usage(num_tokens: int) -> dict[str, int | None]:
    """`Usage` as it goes over the wire."""
    counted = Usage(prompt_tokens=num_tokens, total_tokens=num_tokens)
    as_dict: dict[str, int | None] = msgspec.structs.asdict(counted)
    return as_dict
