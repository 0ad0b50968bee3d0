"""Writes docs/tasks.md from the tasks, the methods and the routes there are: `python docs/make_tasks.py`.

A test holds the page to it. Rows name methods and routes by hand; one that does not exist stops the program.
"""

from __future__ import annotations

import importlib
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from cenote import LLM, PoolingParams
from cenote.server.routes import ROUTES
from cenote.tasks import TASKS, find

PAGE = Path(__file__).with_name("tasks.md")
_INTRO = """# Tasks and uses

A task is what one forward can be read as. A checkpoint serves all that it can be read as at once, and a request names
the task; `PoolerConfig(task=...)` sets the one where it names none. A use is made of tasks. This page is written by
`python docs/make_tasks.py`.
"""
_AFTER = """
Old names work with one warning: `embedding` is embed; `score` is classify for a cross-encoder and embed for any other;
`reward` and `encode` are token_classify, or token_embed where there is no classifier. A model that is read as another
default says so in `cenote inspect` (`default_task`).
"""

# Fields of `PoolingParams` that no task here takes, or that are no options.
_ELSEWHERE = ("task", "step_tag_id", "returned_token_ids", "extra_kwargs")

# Task -> methods of LLM beside `encode`, routes beside `/pooling`, and who serves it.
_TASKS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "embed": (
        ("embed", "embed_query", "embed_document", "embed_iter"),
        ("/v1/embeddings", "/v2/embed"),
        "every embedder: 1st",
    ),
    "classify": (("classify", "reward"), ("/classify",), "classifiers of texts: 1st"),
    "token_embed": ((), (), "embedders with one pooling, late interaction: after embed, or 1st where there is none"),
    "token_classify": (("reward",), (), "classifiers of tokens: 1st; those of texts: 2nd"),
    "sparse": (
        ("embed_sparse",),
        (),
        "folders of a SparseEncoder: 1st; masked language models: after the others",
    ),
}

# Use -> what it gives, the tasks that it is made of in the order in which they are tried, methods, routes.
_USES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "score": (
        "A number for each pair.",
        ("classify", "embed", "token_embed", "sparse"),
        ("score",),
        ("/score", "/v1/score"),
    ),
    "rerank": (
        "Documents from best to worst.",
        ("classify", "embed", "token_embed", "sparse"),
        ("rerank",),
        ("/rerank", "/v1/rerank", "/v2/rerank"),
    ),
    "reward": ("Raw values, no activation.", ("classify", "token_classify"), ("reward",), ("/pooling",)),
    "entities": (
        "Stretches of a text and their labels, from a model that labels tokens.",
        ("token_classify",),
        ("entities",),
        (),
    ),
    "zero-shot classification": (
        "Any labels from likely to unlikely, from a model of natural language inference.",
        ("classify",),
        ("zero_shot",),
        (),
    ),
    "all of BGE-M3": (
        "Three kinds of vectors by one forward.",
        ("embed", "sparse", "token_embed"),
        ("embed_all",),
        (),
    ),
    "fill-mask": ("The likeliest words in the place of each mask.", ("token_classify",), ("fill_mask",), ()),
    "late chunking": ("A vector for each span of a document.", ("token_embed",), ("embed_chunks",), ()),
}


def page() -> str:
    """The whole page."""
    tasks = "\n".join(_task_row(name) for name in TASKS)
    uses = "\n".join(_use_row(name) for name in _USES)
    return (
        f"{_INTRO}\n"
        "| task | gives | offline | routes | served by, and whether it is the default |\n|---|---|---|---|---|\n"
        f"{tasks}\n\n"
        "| use | gives | made of | offline | routes |\n|---|---|---|---|---|\n"
        f"{uses}\n\n## Options\n\n"
        "Of each request, and mixed freely: offline as keywords, or one `PoolingParams` for each prompt with "
        f"{_named(field.name for field in fields(PoolingParams) if field.name not in _ELSEWHERE)}.\n\n"
        f"| task | options |\n|---|---|\n" + "\n".join(_options_row(name) for name in TASKS) + f"\n{_AFTER}"
    )


def _task_row(name: str) -> str:
    module: Any = importlib.import_module(f"cenote.tasks.{name}")
    gives = str(module.__doc__).split("\n", 1)[0].rstrip(".")
    # A task without a row of its own has at least what every task has.
    methods, routes, default = _TASKS.get(name, ((), (), "see `cenote inspect`"))
    offline = [f'`LLM.encode(pooling_task="{name}")`', *(_method(method) for method in methods)]
    return f"| `{name}` | {gives}. | {', '.join(offline)} | {_routes('/pooling', *routes)} | {default} |"


def _use_row(name: str) -> str:
    gives, tasks, methods, routes = _USES[name]
    assert set(tasks) <= set(TASKS)
    return f"| {name} | {gives} | {_named(tasks)} | {', '.join(map(_method, methods))} | {_routes(*routes)} |"


def _options_row(name: str) -> str:
    names = [field.name for field in fields(cast(Any, find(name).default_params()))]
    # Rows of tokens are not pooled; asking for it is refused.
    return f"| `{name}` | {_named(one for one in names if (name, one) != ('token_embed', 'pooling'))} |"


def _method(name: str) -> str:
    assert callable(getattr(LLM, name)), name
    return f"`LLM.{name}`"


def _routes(*paths: str) -> str:
    known = {route.path for route in ROUTES}
    assert set(paths) <= known, set(paths) - known
    return _named(paths)


def _named(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
