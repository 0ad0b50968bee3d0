"""`cenote bench`: how much a server answers, and how fast, under load."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from .. import values
from ..config import ShellSettings
from ..errors import ConfigError, MissingExtra, Unavailable
from .load_table import print_runs, watching
from .options import Given, settings
from .sources import Sources, check_outputs
from .version import version

if TYPE_CHECKING:
    from ..loadgen.client import Asked
    from ..loadgen.loads import Load, Until
    from ..loadgen.summary import Summary
    from ..loadgen.texts import Texts

_DEFAULT_SECONDS = 10.0

_EXAMPLES = """\b
Examples:
  cenote bench http://127.0.0.1:8000                    8 clients for 10 s, texts of 8 to 64 words
  cenote bench http://127.0.0.1:8000 --concurrency 1,8,64 --plot curve.png
  cenote bench http://127.0.0.1:8000 --rate 200 --duration 60 --json run.json
  cenote bench http://host:8080/embed --words 200 --texts-per-request 32
  cenote bench http://127.0.0.1:8000 --dialect rerank --query "who eats mice?" --input docs.txt
  cenote bench https://host --api-key KEY --model e5 --body '{"encoding_format": "base64"}'

\b
With --concurrency each client waits for its answer before it asks again, which shows what a server can do at most.
With --rate requests come whether or not it keeps up, which shows what users would wait: latency counts from the
moment a request was due. Texts are never all alike, so a cache of the server answers few of them.
Every request is counted once: as answered, or as failed under the kind of its failure. Exit code 1: none was answered.
"""


def _seconds(context: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Seconds that come to an end; a range of click lets `nan` and `inf` pass."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds.", context, param)
    return value


def _numbers(kind: type[int] | type[float]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """Reads one or more positive numbers with commas between."""

    def read(context: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
        if value is None:
            return None
        try:
            numbers = tuple(kind(part) for part in value.split(","))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number < float("inf") for number in numbers):
            what = f"{value!r} is no list of positive numbers."
            raise click.BadParameter(f"{what} Write one, or several with commas between.", context, param)
        return numbers

    return read


def _words(context: click.Context, param: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Reads a number of words, or a range of them."""
    if value is None:
        return None
    fewest, _, most = value.partition("-")
    if not fewest.isdecimal() or not (most or fewest).isdecimal():
        what = f"{value!r} is no number of words."
        raise click.BadParameter(f"{what} Write 50, or 8-64 for any number between.", context, param)
    return int(fewest), int(most or fewest)


def _headers(context: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Reads headers, each a name and a value with a colon between."""
    headers = {}
    for value in values:
        name, colon, content = (part.strip() for part in value.partition(":"))
        if not (name and colon) or not value.isprintable():
            raise click.BadParameter(f"{value!r} is no header. Write it as 'NAME: VALUE'.", context, param)
        headers[name] = content
    return headers


def _object(context: click.Context, param: click.Parameter, value: str | None) -> dict[str, Any]:
    """Reads a JSON object."""
    return {} if value is None else values.named_values("--body", value)


@dataclass(frozen=True)
class _Wanted:
    """What the user wrote, but for where results go."""

    url: str
    dialect: str
    model: str | None
    api_key: str | None
    headers: dict[str, str]
    body: dict[str, Any]
    concurrency: tuple[int, ...] | None
    rate: tuple[float, ...] | None
    arrivals: str
    max_in_flight: int
    texts_per_request: int | None
    words: tuple[int, int] | None
    files: tuple[str, ...]
    field: str | None
    query: str | None
    duration: float | None
    requests: int | None
    warmup: float
    timeout: float
    seed: int


_PATH = click.Path(dir_okay=False, path_type=Path)


@click.command(epilog=_EXAMPLES)
@click.argument("url")
@click.option(
    "--dialect",
    type=click.Choice(["auto", "openai", "tei", "rerank", "tei-rerank"]),
    default="auto",
    help="How to ask: OpenAI's /v1/embeddings, /embed of text-embeddings-inference, /v1/rerank as Cohere has it, or "
    "/rerank of text-embeddings-inference. auto asks once in each way, in this order, and takes the first that is "
    "answered as it should be. [default: auto]",
)
@click.option("--model", help="Name of the model in requests. [default: the first that the server lists]")
@click.option("--api-key", metavar="KEY", help="Sent as a bearer token.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_headers,
    metavar="'NAME: VALUE'",
    help="Further header of each request; may be repeated.",
)
@click.option("--body", callback=_object, metavar="JSON", help="Further fields of each request.")
@click.option(
    "--concurrency",
    callback=_numbers(int),
    metavar="N,...",
    help="Clients at once, one run for each number. [default: 8]",
)
@click.option(
    "--rate",
    callback=_numbers(float),
    metavar="N,...",
    help="Requests a second, however slow the answers; one run for each.",
)
@click.option(
    "--arrivals",
    type=click.Choice(["poisson", "constant"]),
    default="poisson",
    help="With --rate, whether requests come at random or in equal steps. [default: poisson]",
)
@click.option(
    "--max-in-flight",
    type=click.IntRange(1),
    default=1024,
    help="With --rate, connections at most; what waits for one is late, and counted so. [default: 1024]",
)
@click.option(
    "--texts-per-request",
    type=click.IntRange(1),
    help="Texts of each request, or documents to rank. [default: 1, of rankings 16]",
)
@click.option("--words", callback=_words, metavar="N[-N]", help="Length of the English texts. [default: 8-64]")
@click.option("--input", "files", multiple=True, metavar="FILE", help="Send the texts of this file; may be repeated.")
@click.option("--field", help="JSON field or Parquet column that holds the text; named, lines are JSON.")
@click.option("--query", metavar="TEXT", help="What to rank by. [default: another text for each request]")
@click.option(
    "--duration", type=click.FloatRange(0, min_open=True), callback=_seconds, help="Seconds of a run. [default: 10]"
)
@click.option("--requests", type=click.IntRange(1), help="Requests of a run, in place of --duration.")
@click.option(
    "--warmup", type=click.FloatRange(0), callback=_seconds, default=1.0, help="Seconds before each run. [default: 1]"
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    callback=_seconds,
    default=60.0,
    help="Seconds after which a request has failed. [default: 60]",
)
@click.option("--seed", type=int, default=0, help="Another one asks for other texts at other times. [default: 0]")
@click.option("--json", "json_path", type=_PATH, metavar="FILE", help="Write all figures to this file.")
@click.option("--plot", "plot_path", type=_PATH, metavar="FILE", help="Draw a PNG (extra `plot`).")
@settings(ShellSettings)
def bench(given: Given, json_path: Path | None, plot_path: Path | None, **wanted: Any) -> None:
    """Put a server under load and measure what it answers: throughput, latency and failures.

    URL is that of any server that speaks one of the dialects, or of the route itself. One model, many shapes of load.
    """
    outputs = [path for path in (json_path, plot_path) if path is not None]
    asked, summaries = _runs(_Wanted(**wanted), plot_path, outputs, given)
    if json_path is not None:  # before the tables, which may go to a pipe that is closed
        json_path.write_bytes(orjson.dumps(_figures(asked, wanted, summaries), option=orjson.OPT_INDENT_2))
    if plot_path is not None:
        from ..loadgen.picture import draw

        draw(plot_path, summaries, f"{asked.url}: {asked.num_texts} a request, {asked.texts.described()}")
    print_runs(asked, summaries)
    if not any(summary.answered for summary in summaries):
        raise Unavailable(f"None of {sum(summary.requests for summary in summaries):,} requests was answered.")


def _runs(
    wanted: _Wanted, plot_path: Path | None, outputs: Sequence[Path], given: Given
) -> tuple[Asked, list[Summary]]:
    """What was asked, and the summary of each run."""
    try:
        from ..loadgen.detect import settle
        from ..loadgen.drive import run
        from ..loadgen.picture import check_can_draw
        from ..loadgen.summary import summarise
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("cenote"):
            raise
        raise MissingExtra(f"cenote bench needs {error.name}.", fix="Run `pip install 'cenote[cli]'`.") from error
    if plot_path is not None:
        check_can_draw()
    _check(wanted, outputs)
    loads, until = _loads(wanted)
    texts = _texts(wanted)

    async def all_runs() -> tuple[Asked, list[Summary]]:
        asked = await settle(_asked(wanted, texts), wanted.url, wanted.dialect, wanted.model)
        found = []
        for load in loads:
            with watching(load.label, quiet=given.settings(ShellSettings).quiet) as watch:
                measured = await run(asked, load, until, warmup_s=wanted.warmup, seed=wanted.seed, watch=watch)
            found.append(summarise(measured))
        return asked, found

    return asyncio.run(all_runs())


def _check(wanted: _Wanted, outputs: Sequence[Path]) -> None:
    exclusive = (
        ("--concurrency", wanted.concurrency, "--rate", wanted.rate),
        ("--duration", wanted.duration, "--requests", wanted.requests),
        ("--words", wanted.words, "--input", wanted.files or None),
    )
    for one, given, other, also_given in exclusive:
        if given is not None and also_given is not None:
            raise ConfigError(f"{one} and {other} exclude each other.", fix="Give one of them.", param=one)
    if wanted.field is not None and not wanted.files:
        raise ConfigError("--field names a field of --input, and there is none.", param="--field")
    if wanted.api_key is not None and not wanted.api_key.isprintable():
        raise ConfigError("--api-key has a control character.", allowed="One line of text.", param="--api-key")
    if len({path.resolve() for path in outputs}) < len(outputs):
        raise ConfigError(f"--json and --plot both name {outputs[0]}.", fix="Name two files.", param="--plot")
    check_outputs(outputs, wanted.files)


def _loads(wanted: _Wanted) -> tuple[list[Load], Until]:
    from ..loadgen.loads import Closed, Open, Until

    loads: list[Load] = [Closed(number) for number in wanted.concurrency or (8,)]
    if wanted.rate is not None:
        arrivals: Any = wanted.arrivals
        loads = [Open(rate, arrivals, wanted.max_in_flight) for rate in wanted.rate]
    seconds = None if wanted.requests is not None else wanted.duration or _DEFAULT_SECONDS
    return loads, Until(seconds, wanted.requests)


def _texts(wanted: _Wanted) -> Texts:
    from ..loadgen.texts import Listed, Prose

    if not wanted.files:
        return Prose(*(wanted.words or (8, 64)), wanted.seed)
    sources = Sources((), wanted.files, wanted.field or "text", "auto" if wanted.field is None else "json")
    sources.check()
    texts = []
    for record in sources.read():
        if record.error is not None:
            raise record.error
        texts.append(record.text or "")
    return Listed(texts, ", ".join(wanted.files), wanted.seed)


def _asked(wanted: _Wanted, texts: Texts) -> Asked:
    """What is asked, the dialect still open."""
    from ..loadgen.client import Asked
    from ..loadgen.detect import candidates

    dialect, url = candidates(wanted.url, wanted.dialect)[0]
    return Asked(
        url,
        dialect,
        texts,
        texts_per_request=wanted.texts_per_request,
        fields=wanted.body,
        query=None if wanted.query is None else orjson.dumps(wanted.query),
        headers=wanted.headers | ({} if wanted.api_key is None else {"authorization": f"Bearer {wanted.api_key}"}),
        timeout_s=wanted.timeout,
    )


def _figures(asked: Asked, wanted: dict[str, Any], runs: Sequence[Summary]) -> dict[str, Any]:
    """All that a reader of the file needs, but no key, nor a header, which may hold one."""
    options = {name: value for name, value in wanted.items() if name not in ("api_key", "headers")}
    return {
        "cenote": version(),
        "url": asked.url,
        "dialect": asked.dialect.name,
        "model": asked.fields.get("model"),
        "texts": asked.texts.described(),
        "texts_per_request": asked.num_texts,
        "options": options,
        "runs": [asdict(run) for run in runs],
    }
