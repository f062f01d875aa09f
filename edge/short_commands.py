"""`isthmus pull | list | ps | rm`: the commands of a device's models by the names that other runners gave them.

Each is the command of that name below `isthmus edge`, with the same options, output and exit codes.
"""

from __future__ import annotations

import typer

from edge.cli import ps, pull
from edge.package_commands import list_, rm

pull_app = typer.Typer(add_completion=False)
pull_app.command("pull")(pull)
list_app = typer.Typer(add_completion=False)
list_app.command("list")(list_)
ps_app = typer.Typer(add_completion=False)
ps_app.command("ps")(ps)
rm_app = typer.Typer(add_completion=False)
rm_app.command("rm")(rm)
