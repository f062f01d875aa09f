"""`isthmus router policy …`: check a policy file, show it, try it on its cases, propose rules from corrections."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from router.options import AsJson, Config
from router.policy.model import Policy
from router.rulebook.document import PolicyDocument
from router.settings import RouterSettings
from shared.settings import load

policy_app = typer.Typer(help="The policy file: check, show, test, propose.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="Policy file.")]
OptionalFile = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="Policy file; default: the one of the settings.")
]


@policy_app.command("check")
def policy_check(file: File, config: Config = None, as_json: AsJson = False) -> None:
    """Say whether a router would take a policy file over, and if not, what is wrong and in which line."""
    from router import policy_console  # noqa: PLC0415 - keeps `--help` fast

    policy_console.show_check(file, *_opened(file, config), as_json=as_json)


@policy_app.command("show")
def policy_show(file: OptionalFile = None, config: Config = None, as_json: AsJson = False) -> None:
    """Show a policy as a router would apply it: the defaults, and the rules in their order."""
    from router import policy_console  # noqa: PLC0415 - keeps `--help` fast

    chosen = file or load(RouterSettings, "router", config).policy.file
    policy_console.show_policy(*_opened(chosen, config), as_json=as_json)


@policy_app.command("test")
def policy_test(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Policy file with cases; default: all shipped examples.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Try a policy on the cases in its file. Exits with 1 when one does not come out as expected."""
    from router import policy_console  # noqa: PLC0415 - keeps `--help` fast

    files = policy_console.examples() if file is None else [file]
    scan = load(RouterSettings, "router", config).scan
    return policy_console.show_cases([(each, *_opened(each, config)) for each in files], scan, as_json=as_json)


@policy_app.command("examples")
def policy_examples(as_json: AsJson = False) -> None:
    """Print the paths of the policy files that ship with the program."""
    from router import policy_console  # noqa: PLC0415 - keeps `--help` fast

    paths = [str(path) for path in policy_console.examples()]
    typer.echo(json.dumps(paths) if as_json else "\n".join(paths))


@policy_app.command("propose")
def policy_propose(
    least: Annotated[int, typer.Option("--least", min=1, help="Corrections that must speak for a rule.")] = 3,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Propose rules from what users said with `isthmus router feedback`. Prints them; applies none."""
    from router import policy_console  # noqa: PLC0415 - keeps `--help` fast
    from router.audit.files import newest_records  # noqa: PLC0415
    from router.audit.proposal import proposals  # noqa: PLC0415
    from router.audit_commands import log_dir  # noqa: PLC0415

    policy_console.show_proposals(proposals(newest_records(log_dir(config)), least=least), as_json=as_json)


def _opened(file: Path | None, config: Path | None) -> tuple[PolicyDocument, Policy]:
    """The document in `file` and the policy that it makes over the settings.

    Raises:
        SettingsError: it is not a valid policy.
    """
    from router.policy_console import open_policy  # noqa: PLC0415 - keeps `--help` fast

    return open_policy(file, load(RouterSettings, "router", config), keys_known=config is not None)
