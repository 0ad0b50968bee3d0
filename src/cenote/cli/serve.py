"""`cenote serve`: answer over HTTP."""

from __future__ import annotations

import click

from ..config import MachineSettings, ModelSettings, ServerSettings, ShellSettings, env_name, environment
from ..errors import MissingExtra
from . import other_env
from .options import Given, settings
from .other_flags import WithOtherFlags

_EXAMPLES = """\b
Examples:
  cenote serve                                          the embedded model on 127.0.0.1:8000
  cenote serve intfloat/e5-small-v2 --served-model-name e5 --api-key SECRET
  curl 127.0.0.1:8000/v1/embeddings -H 'content-type: application/json' -d '{"input": "a text"}'
"""


@click.command(cls=WithOtherFlags, epilog=_EXAMPLES)
@click.argument("name", metavar="[MODEL]", required=False)
@settings(ModelSettings, ServerSettings, MachineSettings, ShellSettings)
def serve(given: Given, name: str | None) -> None:
    """Serve a model over HTTP until SIGTERM or Ctrl-C; requests that run then get time to finish."""
    try:
        from ..server.serve import serve as run
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cenote"):
            raise
        raise MissingExtra(f"Serving needs {error.name}.", fix="Run `pip install 'cenote[server]'`.") from error
    given = given.with_model(name)
    env = environment()
    if other_env.MODEL in env and "model" not in given.by_class[ModelSettings] and env_name("model") not in env:
        env = other_env.ours(env)
    code = run(
        given.settings(ModelSettings, env), given.settings(MachineSettings, env), given.settings(ServerSettings, env)
    )
    click.get_current_context().exit(code)
