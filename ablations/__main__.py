"""``python -m ablations``: the command line."""

from ablations.commands.cli import main

main()
