"""The command line: `metrale-lab fetch | run | doctor | lab | notebooks run`."""

from metrale_lab.cli.app import main

__all__ = ["main"]
