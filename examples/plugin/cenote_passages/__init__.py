"""What the package brings to Cenote; nothing heavy is imported until it is asked for."""

from collections.abc import Mapping

from cenote.hookspecs import hookimpl


def passages() -> str:
    """The class of the IO processor `passages`."""
    return "cenote_passages.processor.Passages"


@hookimpl
def cenote_poolings() -> Mapping[str, str]:
    """Modes of pooling."""
    return {"inner_mean": "cenote_passages.pooling:inner_mean"}


@hookimpl
def cenote_tasks() -> Mapping[str, str]:
    """What a model can be read as."""
    return {"passage_embed": "cenote_passages.passage_embed"}


@hookimpl
def cenote_uses() -> Mapping[str, str]:
    """What is made of tasks."""
    return {"best_passage": "cenote_passages.best_passage"}
