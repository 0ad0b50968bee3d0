"""Compiles `csrc` into the one library of the package: every source once for each instruction set.

Hatchling runs it when it builds a wheel or an editable install; `python kernels/hatch_build.py` does the same by hand.
`CC` names another compiler and `CFLAGS` adds flags, as everywhere.
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "src" / "cenote_kernels" / "kernels.so"

_AVX512 = ("-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mavx2", "-mfma", "-mtune=skylake-avx512")
ISAS = {
    "avx2": ("-mavx2", "-mfma", "-mtune=haswell"),
    "avx512": _AVX512,
    "avx512_vnni": (*_AVX512, "-mavx512vnni"),
}
"""Name of an instruction set, which ends the names of its functions -> flags of the compiler."""

# The order of float32 operations is what was written: no reassociation, and a product is fused only where it says so.
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-fPIC",
    "-pthread",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
)


def compile_library(library: Path = LIBRARY) -> None:
    """Compile and link.

    Raises:
        SystemExit: There is no C compiler, or the machine is not x86-64 Linux.
        CalledProcessError: The compiler failed; it said why.
    """
    cc = shlex.split(os.environ.get("CC", "cc"))
    if platform.machine() != "x86_64" or sys.platform != "linux":
        sys.exit(f"cenote-kernels is for Linux on x86-64; this is {sys.platform} on {platform.machine()}.")
    if shutil.which(cc[0]) is None:
        sys.exit(f"There is no C compiler {cc[0]!r}. Install gcc or clang, or name one in CC.")
    flags = [*FLAGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    with tempfile.TemporaryDirectory() as folder:
        objects = [(HERE / "csrc" / f"{name}.c", Path(folder) / f"{name}.o", ["-mno-avx"]) for name in ("cpu", "team")]
        for isa, of_isa in ISAS.items():
            for source in sorted((HERE / "csrc" / "kernels").glob("*.c")):
                objects.append((source, Path(folder) / f"{source.stem}_{isa}.o", [*of_isa, f"-DISA={isa}"]))

        def compiled_one(made: tuple[Path, Path, list[str]]) -> Path:
            source, compiled, more = made
            subprocess.run([*cc, *flags, *more, "-c", source, "-o", compiled], check=True)
            return compiled

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            linked = list(pool.map(compiled_one, objects))
        built = Path(folder) / library.name
        subprocess.run([*cc, *flags, "-shared", *linked, "-o", built, "-lm"], check=True)
        # Replaced, not overwritten: a process that has the old one open keeps it.
        staged = library.with_suffix(".new")
        shutil.copy(built, staged)
        staged.replace(library)


if __name__ == "__main__":
    compile_library()
else:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface

    class Compiled(BuildHookInterface[Any]):
        """Hatchling's step before it packs the files."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            """Compile, and say that the wheel fits every Python on this kind of machine and no other."""
            if self.target_name != "wheel":
                return
            compile_library()
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-linux_x86_64"
            build_data["artifacts"].append(f"src/cenote_kernels/{LIBRARY.name}")
