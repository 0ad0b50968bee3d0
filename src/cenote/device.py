"""Which device and which precision, chosen once, with the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch

from .config import KernelChoice, MachineSettings, Quantization
from .cores import num_cores
from .errors import ConfigError

DTYPES: Final = {
    "float32": torch.float32,
    "float": torch.float32,
    "float16": torch.float16,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
}


KERNELS_VERSION: Final = "0.3.0"
"""Of cenote-kernels: they read records as this version packs them, and check nothing."""


@dataclass(frozen=True)
class Plan:
    """How one model runs on this machine.

    Args:
        device: Where it runs.
        dtype: Precision of the layers; pooling, normalising and heads are float32 always.
        reasons: Name of a value -> why it is what it is.
        quantization: How the linear layers of the transformer multiply: `none` (in `dtype`) or `int8`.
        kernels: Instruction set of our own kernels, or None where PyTorch computes.
        num_workers, threads_per_worker, max_batch_tokens: Resolved settings.
    """

    device: torch.device
    dtype: torch.dtype
    reasons: dict[str, str]
    quantization: Quantization
    kernels: str | None
    num_workers: int
    threads_per_worker: int
    max_batch_tokens: int


def plan(machine: MachineSettings, dtype: str, stored: str, *, native: bool = True) -> Plan:
    """Decide.

    Args:
        dtype: The setting: `auto` or a name of `DTYPES`.
        stored: The precision of the stored weights, a name of `DTYPES`.
        native: Whether the model is ours; transformers knows nothing of our kernels.

    Raises:
        ConfigError: A name is unknown, or the device or the kernels asked for are not there.
    """
    device, why_device = _device(machine.device)
    chosen, why_dtype = _dtype(dtype, stored, device)
    cores = num_cores()
    on_cpu = device.type == "cpu"
    workers = machine.num_workers or (cores if on_cpu else 1)
    threads = machine.threads_per_worker or max(1, cores // workers)
    why_not = why_not_kernels(device, chosen, threads) if native else "transformers computes this model"
    isa, why_kernels = _kernels(machine.kernels, why_not)
    return Plan(
        device=device,
        dtype=chosen,
        reasons={"device": why_device, "dtype": why_dtype, "kernels": why_kernels},
        quantization=machine.quantization,
        kernels=isa,
        num_workers=workers,
        threads_per_worker=threads,
        # On the CPU a batch should stay in the caches; elsewhere it should fill the device.
        max_batch_tokens=machine.max_batch_tokens or (1024 if on_cpu else 16384),
    )


def why_not_kernels(device: torch.device, dtype: torch.dtype, threads: int) -> str | None:
    """Why our own kernels cannot compute here, or None where they can; `threads` are those of a worker."""
    if device.type != "cpu":
        return f"the model is on {device.type}, and they are for the CPU"
    if dtype != torch.float32:
        return f"the model runs in {dtype}, and they take float32"
    if threads != 1:
        return f"a worker has {threads} compute threads, and they take one (num_workers, threads_per_worker)"
    try:
        import cenote_kernels
    except ModuleNotFoundError:
        return "the package cenote-kernels is not installed"
    if cenote_kernels.__version__ != KERNELS_VERSION:
        return f"cenote-kernels is {cenote_kernels.__version__}, and this Cenote needs {KERNELS_VERSION}"
    return cenote_kernels.why_not()


def _kernels(choice: KernelChoice, why_not: str | None) -> tuple[str | None, str]:
    """The instruction set of the kernels, or None, and why; `why_not` says why none can be used, if so."""
    if choice == "off":
        return None, "user"
    if why_not is None:
        import cenote_kernels

        here = cenote_kernels.isas()
        if choice == "auto":
            return here[0], "auto: the best that this CPU has"
        if choice in here:
            return choice, "user"
        why_not = f"this CPU has only {', '.join(here)}"
    if choice != "auto":
        raise ConfigError(f"kernels={choice!r}, but {why_not}.", fix="Use auto or off.", param="kernels")
    return None, f"auto: {why_not}"


def _device(name: str) -> tuple[torch.device, str]:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda", 0), "auto: the first CUDA device"
        return torch.device("cpu"), "auto: no CUDA device"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(
            f"device={name!r}.", allowed="Allowed are auto, cpu, cuda and cuda:N.", param="device"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device={name!r}, but this PyTorch sees no CUDA device.", fix="Use cpu.", param="device")
    return device, "user"


def _dtype(name: str, stored: str, device: torch.device) -> tuple[torch.dtype, str]:
    if name != "auto":
        if name not in DTYPES:
            raise ConfigError(f"dtype={name!r}.", allowed=f"Allowed are auto, {', '.join(DTYPES)}.", param="dtype")
        return DTYPES[name], "user"
    if stored != "float32" and device.type == "cpu" and not _native(stored):
        # Without units for half precision every product would be emulated, several times slower than float32.
        return torch.float32, f"auto: stored as {stored}, for which this CPU has no units"
    return DTYPES[stored], f"auto: as stored ({stored})"


def _native(dtype: str) -> bool:
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    needed = {"bfloat16": ("amx_bf16", "avx512_bf16"), "float16": ("amx_fp16", "avx512_fp16")}[dtype]
    return any(bool(capabilities.get(name)) for name in needed)
