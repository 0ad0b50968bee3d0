"""Fields that several requests and responses share, with their JSON Schema.

Requests grow from `CallFields` (every call) to `PromptFields` (texts or conversations) to `ArrayFields` (vectors).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from . import arrays

Message: TypeAlias = Annotated[
    dict[str, Any],
    Meta(
        description="One turn of a conversation. Its content is a text or a list of parts of the type text; what else "
        "it holds goes to the template.",
        extra_json_schema={"required": ["role"], "properties": {"role": {"type": "string"}}},
    ),
]
PairOfTexts: TypeAlias = Annotated[
    dict[str, Any],
    Meta(
        description="Two texts that are read together, as `text` and `text_pair`; or a message of a conversation; or, "
        "for a model with a Router, a text under the name of what it is, as in `query`."
    ),
]
Prompts: TypeAlias = Annotated[
    str | list[str | int | list[int | Message] | PairOfTexts] | PairOfTexts,
    Meta(
        description="A text, a pair of texts, token ids, a conversation (a list of messages), or a list of one kind of "
        "those; a list is not empty."
    ),
]
Conversations: TypeAlias = Annotated[
    list[Message | list[Message]], Meta(description="A conversation, or a list of conversations.")
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


class CallFields(Struct, kw_only=True):
    """What every call may say."""

    model: Annotated[str, Meta(description="A served name; unset, the only model.")] | None = None
    user: Annotated[str, Meta(description="Accepted and without effect.")] | None = None
    truncate_prompt_tokens: TruncateTokens | None = None
    truncation_side: TruncationSide | None = None
    padding: Padding | None = None
    request_id: Annotated[str, Meta(description="The response's id ends with it.")] | None = None
    priority: Annotated[
        Int64, Meta(description="Above 0, requests of priority 0 and below go first; 512 inputs at 0 count as above.")
    ] = 0
    cache_salt: CacheSalt | None = None
    use_activation: (
        Annotated[
            bool,
            Meta(
                description="Whether vectors are normalised, or the activation of a classifier is applied; unset, as "
                "the model says."
            ),
        ]
        | None
    ) = None
    chat_template: (
        Annotated[str, Meta(description="Refused, unless the server trusts requests with templates.")] | None
    ) = None
    chat_template_kwargs: Annotated[dict[str, Any], Meta(description="Variables of the template.")] | None = None
    mm_processor_kwargs: NotServed | UnsetType = UNSET
    media_io_kwargs: NotServed | UnsetType = UNSET


class PromptFields(CallFields, kw_only=True):
    """Inputs of a call: `input`, or `messages`."""

    input: Prompts | UnsetType = UNSET
    messages: Conversations | None = None
    add_special_tokens: Annotated[bool, Meta(description="Unset, yes for texts and no for conversations.")] | None = (
        None
    )
    add_generation_prompt: Annotated[bool, Meta(description="End a conversation with the start of an answer.")] = False
    continue_final_message: Annotated[bool, Meta(description="Leave the last message of a conversation open.")] = False
    input_type: (
        Annotated[
            str,
            Meta(
                description="What the inputs are, which chooses a prompt: query (or search_query), document (or "
                "search_document, passage), or the name of one of the model's prompts; another one chooses none. "
                "It also chooses the route of a model that reads queries and documents in ways of their own."
            ),
        ]
        | None
    ) = None
    prompt_name: Annotated[str, Meta(description="Name of one of the model's prompts.")] | None = None
    prompt: Annotated[str, Meta(description="Text put before each input.")] | None = None
    prompt_embeds: NotServed | UnsetType = UNSET


class LengthFields(PromptFields, kw_only=True):
    """What happens to inputs that are longer than the model; the answer then says what was read of each."""

    on_long: (
        Annotated[
            Literal["refuse", "cut", "chunk"],
            Meta(description="Refuse longer inputs, cut them, or embed them in pieces. Unset, as the server says."),
        ]
        | None
    ) = None
    side: (
        Annotated[
            Literal["left", "right"], Meta(description="With on_long=cut: the end that is cut off; unset, right.")
        ]
        | None
    ) = None
    limit: (
        Annotated[
            Int64,
            Meta(
                description="Most tokens of an input, special ones included, where that is less than the model's "
                "limit; with on_long=chunk of all its pieces together."
            ),
        ]
        | None
    ) = None
    chunk_overlap: (
        Annotated[Int64, Meta(description="With on_long=chunk: tokens that a piece shares with the one before.")] | None
    ) = None
    spans: (
        Annotated[
            list[list[list[Int64]]],
            Meta(
                description="Late chunking: for each input a list of spans, each its start and end; one forward reads "
                "the whole input, and each span has a vector. The input is a text, or a list of texts."
            ),
        ]
        | None
    ) = None
    span_unit: (
        Annotated[
            Literal["chars", "tokens"], Meta(description="What spans count: characters, or tokens with special ones.")
        ]
        | None
    ) = None


class ArrayFields(LengthFields, kw_only=True):
    """What is said about vectors."""

    adapter: Annotated[str, Meta(description="Name of one of the model's adapters to read the inputs with.")] | None = (
        None
    )
    normalize: (
        Annotated[bool, Meta(description="Old name of use_activation.", extra_json_schema={"deprecated": True})] | None
    ) = None
    pooling: (
        Annotated[
            str,
            Meta(
                description="Pool in this way, not as the model does: cls, max, mean, mean_sqrt_len, weightedmean, "
                "last, or a mode of an installed plugin."
            ),
        ]
        | None
    ) = None
    dimensions: Annotated[int, Meta(description="Keep this many leading numbers of a Matryoshka model.")] | None = None
    encoding_format: (
        Annotated[
            arrays.EncodingFormat,
            Meta(description="Numbers, base64, or raw bytes; bytes has their places in the header `metadata`."),
        ]
        | None
    ) = None
    embed_dtype: Annotated[arrays.EmbedDtype, Meta(description="Precision of base64 and bytes.")] = "float32"
    endianness: Annotated[arrays.Endianness, Meta(description="Byte order of base64 and bytes.")] = "native"


class Read(Struct, kw_only=True):
    """What was read of an input, where the request has a field of `LengthFields`."""

    input: Annotated[int, Meta(description="Place of the input, where it has spans.")] | UnsetType = UNSET
    span: Annotated[list[int], Meta(description="The span whose vector this is.")] | UnsetType = UNSET
    tokens: Annotated[int, Meta(description="Tokens that were read.")] | UnsetType = UNSET
    cut_tokens: Annotated[int, Meta(description="Tokens that were cut off, at least.")] | UnsetType = UNSET
    pieces: Annotated[int, Meta(description="In how many pieces it was read.")] | UnsetType = UNSET


class Usage(Struct, kw_only=True):
    """Tokens of the inputs after cutting, special tokens included; the last two are there where `Read` is."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: Literal[0] = 0
    prompt_tokens_details: None = None
    completion_tokens_details: None = None
    cut_tokens: int | UnsetType = UNSET
    pieces: int | UnsetType = UNSET


def usage(num_tokens: int) -> dict[str, int | None]:
    """`Usage` as it goes over the wire."""
    return {**_NO_TOKENS, "prompt_tokens": num_tokens, "total_tokens": num_tokens}


_NO_TOKENS: Final[dict[str, int | None]] = msgspec.to_builtins(Usage(prompt_tokens=0, total_tokens=0))
