"""The `isthmus` command: its own sub-commands, those that the tiers contribute, and how each failure ends.

Exit codes: 0 done; 1 it failed, and the one line on standard error says why; 2 the command line, the settings or the
machine do not allow it; 10 to 24 a package was refused, could not be had or is in use (one code for each cause, in
`shared.errors`); 70 a fault of the program itself; 130 interrupted.

A tier contributes through the entry-point group `isthmus.commands` and is loaded only when it is named, so that one
whose packages are absent, or whose module is broken, costs the others nothing.
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.exceptions import Abort, TyperException

from shared import __version__
from shared.errors import IsthmusError
from shared.extras import COMMAND_GROUP, SHORT_COMMANDS, TIER_EXTRAS, extra_of

DONE, FAILED, USAGE, FAULT, INTERRUPTED = 0, 1, 2, 70, 130
_TIERS_PANEL, _SHORT_PANEL = "Tiers", "Models and conversations"


class Root(TyperGroup):
    """The root group: own commands first, then one command for each entry point, loaded when asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Own commands and contributed ones, each name once."""
        return [*super().list_commands(ctx), *(name for name in _contributed() if name not in self.commands)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; a stand-in that explains when it cannot be loaded."""
        own = super().get_command(ctx, cmd_name)
        if own is not None or cmd_name not in _contributed():
            return own
        return _load(_contributed()[cmd_name])


def _contributed() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=COMMAND_GROUP)}


def _load(point: EntryPoint) -> Any:
    try:
        command: Any = typer.main.get_command(point.load())
    except Exception as error:  # noqa: BLE001 - a broken plug-in, whatever it raises, must not take the others along
        command = _stand_in(point.name, error)
        command.rich_help_panel = _TIERS_PANEL
        return command
    command.name = point.name
    # Completion is installed once, for the whole command.
    command.params = [each for each in command.params if each.name not in ("install_completion", "show_completion")]
    if point.name in TIER_EXTRAS:
        command.rich_help_panel = _TIERS_PANEL
    elif point.name in SHORT_COMMANDS:
        command.rich_help_panel = _SHORT_PANEL
    if _is_absent(point.name):
        command.short_help = f"{_first_line(command.help)} (not installed: see isthmus doctor)"
    return command


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _stand_in(name: str, error: Exception) -> Any:
    """A command that takes any arguments and reports why the real one cannot be loaded."""
    app = typer.Typer(add_completion=False)
    note = "not installed" if isinstance(error, ImportError) and _is_absent(name) else "cannot be loaded"

    @app.command(
        name,
        help=f"The {name} commands ({note}: see isthmus doctor).",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    )
    def explain() -> NoReturn:
        raise error

    return typer.main.get_command(app)


def _tier_of(name: str) -> str | None:
    """The tier that a command belongs to, if any."""
    return name if name in TIER_EXTRAS else SHORT_COMMANDS.get(name)


def _is_absent(name: str) -> bool:
    tier = _tier_of(name)
    return tier is not None and not extra_of(tier).is_installed


app = typer.Typer(
    cls=Root,
    name="isthmus",
    help="One OpenAI endpoint over devices that run llama.cpp and a cluster that runs vLLM.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"isthmus {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """One OpenAI endpoint over devices that run llama.cpp and a cluster that runs vLLM."""


@app.command()
def up(
    tiers: Annotated[str | None, typer.Option(help="Tiers beside the router: edge,cloud or one of them.")] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML) for all tiers.")] = None,
    heat: Annotated[
        str | None,
        typer.Option(metavar="SCENARIO", help="Simulate a device that grows hot: ramp, hot-day, spike or flapping."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON event a line instead of text.")] = False,
) -> int:
    """Start edge agent, router and cloud tier on this machine, and follow them until Ctrl-C."""
    from shared.launcher.app import run  # noqa: PLC0415 - `isthmus --help` should not load the launcher

    return run(tiers=tiers, config=config, as_json=as_json, heat=heat)


@app.command()
def stop(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML) of that run.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> int:
    """End the `isthmus up` of this home: requests that run get their time, then every process of it ends."""
    from shared.launcher.stopping import stop as stop_run  # noqa: PLC0415 - only this command needs it

    return stop_run(config=config, as_json=as_json)


@app.command()
def doctor(
    config: Annotated[Path | None, typer.Option(help="Settings file (YAML) to check.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> int:
    """Check what each tier needs on this machine, and say what to do about what is missing."""
    from shared.doctor.report import run  # noqa: PLC0415 - only this command needs the checks

    return run(config=config, as_json=as_json)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with a documented code; a failure is one line, never a traceback."""
    given = sys.argv[1:] if arguments is None else arguments
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started us: what is said there is lost, and that is all
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - until the end of the process
    sys.exit(_run(given))


def _run(arguments: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="isthmus", standalone_mode=False)
    except IsthmusError as error:
        return _fail(error.message, error.exit_code)
    except TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            typer.echo(error.format_message())
        else:
            group = getattr(getattr(error, "ctx", None), "command_path", "") or "isthmus"
            return _fail(f"{error.format_message().rstrip('.')}. See {group} --help.", error.exit_code)
        return USAGE
    except (KeyboardInterrupt, Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output left, as `head` does
        sys.stdout = None  # nothing is left to flush at exit
        return FAILED
    except OSError as error:  # a disk that is full or broken, an output that cannot be written
        sys.stdout = None
        return _fail(f"{(error.strerror or type(error).__name__).lower()}{_where(error)}", FAILED)
    except ImportError as error:
        return _fail_import(arguments, error)
    except Exception as error:  # noqa: BLE001 - the last edge: a fault is one line, and its values stay out of it
        return _fail(_fault(error), FAULT)
    if code == INTERRUPTED:  # typer makes this of a Ctrl-C, and says nothing
        return _fail("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _fail(message: str, code: int) -> int:
    typer.echo(f"error: {' '.join(message.split())}", err=True)
    return code


def _where(error: OSError) -> str:
    return f": {error.filename}" if isinstance(error.filename, str) else ""


def _fail_import(arguments: list[str], error: ImportError) -> int:
    tier = _tier_of(next((word for word in arguments if not word.startswith("-")), ""))
    if tier is not None and (missing := extra_of(tier).missing):
        names = ", ".join(each.requirement for each in missing)
        return _fail(f"The {tier} tier is not installed ({names}). Run: {extra_of(tier).remedy}", FAILED)
    return _fail(_fault(error), FAULT)


def _fault(error: Exception) -> str:
    """Type and place of an unexpected error. Its message may hold data of a request, so it is left out; an import
    error's message holds only names of code."""
    import traceback  # noqa: PLC0415 - only a fault needs it

    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    detail = f" ({error})" if isinstance(error, ImportError) else ""
    return f"unexpected {type(error).__name__}{detail}{place}"


if __name__ == "__main__":
    main()
