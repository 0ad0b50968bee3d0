"""Rules for every tracked text file, whatever its language."""

from __future__ import annotations

import re
from collections.abc import Iterator

from house.rules import Finding

# Written so that this file does not match itself.
_MACHINE_PATH = re.compile(
    r"(?<![\w.~$/-])/(?:work|farm|root|home/\w+|Users/\w+|opt/(?:pypi|wheels)|tmp/(?:v|bash)\b)[/\w.]*"
)
_REGISTRY = re.compile(
    r"(?:pypi|pythonhosted|npmjs|crates|anaconda)\.(?:org|io)\b|download\.pytorch\.org|(?:deb|security)\.debian\.org"
    r"|--(?:extra-)?index-url[ =]\S|--find-links[ =]\S",
    re.IGNORECASE,
)


def findings(path: str, text: str) -> Iterator[Finding]:
    """Places of a text that hold only on one machine, or that name a package registry's address."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, rule in ((_MACHINE_PATH, "machine-path"), (_REGISTRY, "registry-address")):
            for match in pattern.finditer(line):
                yield Finding(path, number, rule, f"{match.group()!r} does not belong into the project")
