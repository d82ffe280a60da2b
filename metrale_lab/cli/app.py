"""The commands, and how an error leaves the program: one line on stderr, no traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from metrale_lab.cli import doctor as doctor_command
from metrale_lab.cli import notebooks as notebooks_command
from metrale_lab.cli import run as run_command
from metrale_lab.cli.advice import told
from metrale_lab.errors import MetraleError

app = typer.Typer(
    name="metrale-lab",
    help="Watch a real language-model inference engine at work.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.add_typer(notebooks_command.app, name="notebooks", help="Run notebooks as tests.")
app.command("run")(run_command.run)
app.command("doctor")(doctor_command.doctor)


@app.callback()
def options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    """Watch a real language-model inference engine at work."""
    context.obj = {"debug": debug}


@app.command()
def fetch(model: Annotated[str, typer.Argument(help="A built-in model: smollm2.")]) -> None:
    """Bring a built-in model into this user's cache folder, and say where it is."""
    from tqdm import tqdm

    from metrale_lab.weights.fetch import fetch as fetch_model

    with tqdm(unit="B", unit_scale=True, desc=model, disable=not sys.stderr.isatty()) as bar:

        def progress(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        path = fetch_model(model, progress=progress)
    typer.echo(path)


@app.command()
def lab(
    folder: Annotated[
        Path | None, typer.Argument(help="Folder to open; the shipped notebooks by default.")
    ] = None,
) -> None:
    """Open JupyterLab on the notebooks."""
    from metrale_lab.cli.kernels import kernel_options

    command = [sys.executable, "-m", "jupyterlab", str(folder or shipped_notebooks())]
    raise typer.Exit(subprocess.call([*command, *kernel_options()]))


def shipped_notebooks() -> Path:
    """The notebooks of the source tree, else the current folder."""
    beside = Path(__file__).resolve().parents[2] / "notebooks"
    return beside if beside.is_dir() else Path.cwd()


def main() -> None:
    """Run the command line; a `MetraleError` becomes one line on stderr and exit status 1."""
    debug = "--debug" in sys.argv[1:]
    try:
        app()
    except MetraleError as error:
        if debug:
            raise
        print(f"metrale-lab: {told(error)}", file=sys.stderr)
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
