"""`metrale-lab doctor`: what this machine has and what the engine will use."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import typer

from metrale_lab.counting import counted


def doctor() -> None:
    """Say what this machine has, what the engine will use, and test each operation."""
    failed = False
    for name, value in facts():
        typer.echo(f"{name:22} {value}")
    for name, verdict in self_tests(_device_name()):
        typer.echo(f"{name:22} {verdict}")
        failed = failed or verdict != "ok"
    if failed:
        raise typer.Exit(1)


def facts() -> list[tuple[str, str]]:
    """What there is, as name and value."""
    import torch

    from metrale_lab.device import open_device
    from metrale_lab.weights.fetch import cached_path

    device = open_device("auto")
    cached = cached_path("smollm2")
    found = [
        ("python", platform.python_version()),
        (
            "system",
            f"{platform.system()} {platform.machine()}, {counted(os.cpu_count() or 0, 'core')}",
        ),
        ("device", device.name),
        ("free memory", f"{device.free_memory() / 2**30:.1f} GiB"),
        ("pinned memory", pinned_kind(device.name)),
        ("operations", os.environ.get("METRALE_OPS", "torch")),
        ("threads", str(torch.get_num_threads())),
        ("tiny", str(cached_path("tiny"))),
        ("smollm2", str(cached) if cached else "not fetched: metrale-lab fetch smollm2"),
    ]
    device.close()
    packages = ("torch", "triton", "jupyterlab", "anywidget", "ipykernel", "gguf")
    return found + [(package, _version(package)) for package in packages]


def pinned_kind(device: str) -> str:
    """What `alloc_host_pinned` gives on this device."""
    return "page-locked" if device == "cuda" else "ordinary memory (no lock needed on CPU)"


def self_tests(device: str) -> list[tuple[str, str]]:
    """Run each operation on a small input beside a naive twin; "ok" or what went wrong."""
    import torch

    from metrale_lab.ops.selftest import SELF_TESTS

    results = []
    for name, test in SELF_TESTS.items():
        try:
            with torch.device(device):
                test()
            results.append((name, "ok"))
        except Exception as error:
            results.append((name, f"FAILED: {type(error).__name__}: {error}"))
    return results


def _device_name() -> str:
    from metrale_lab.device import open_device

    device = open_device("auto")
    device.close()
    return device.name


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
