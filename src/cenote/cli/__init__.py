"""The shell's door: `cenote embed`, `classify`, `score`, `rerank`, `serve`, `bench`, `tune`, `inspect` and others.

Nothing here imports torch before a command needs it, so `cenote --help` answers at once.
"""

from __future__ import annotations

import sys

_EXTRA = ("click", "rich", "orjson")


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed, 2 bad input or setting, 130 interrupted."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.stderr.write(f"error: The command line needs {error.name}. Run `pip install 'cenote[cli]'`.\n")
        sys.exit(2)
    app(prog_name="cenote")
