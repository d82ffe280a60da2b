"""`python -m metrale_lab.cli`."""

from metrale_lab.cli.app import main

main()
