"""`isthmus edge …` for packages that are here: list, show, verify, sign, keys and trust, roll back, remove."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edge.settings import EdgeSettings
from shared.settings import load

app = typer.Typer()
trust_app = typer.Typer(help="The keys whose signatures this device accepts.", no_args_is_help=True)
app.add_typer(trust_app, name="trust")

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Name = Annotated[str, typer.Argument(help="Name of the package.")]
KeyFile = Annotated[Path, typer.Option("--key", help="Private key (PEM) from `isthmus edge keygen`.")]


@app.command("list")
def list_(config: Config = None, as_json: AsJson = False) -> None:
    """List the installed packages."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    package_console.show_packages(console.library(_settings(config)).survey(), as_json=as_json)


@app.command()
def show(
    name: Annotated[str | None, typer.Argument(help="Name of the package; default: edge.model.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show all that is known of a package: model, tokenizer, files, signer, release."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    library = console.library(settings)
    package_console.show_package(library, library.show(name or settings.model), as_json=as_json)


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="Name of the package; default: all.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Check files, signature, every byte and header of installed packages, and tokenizers against cloud checkpoints.

    Exit codes: 10 corrupt, 11 unsupported architecture, 12 not a base model, 13 bytes changed, 14 file missing, 15 file
    unexpected, 16 link, 17 downgrade, 18 untrusted key, 19 not signed, 20 wrong signature, 22 tokenizer mismatch.
    """
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.parity import check_parity  # noqa: PLC0415
    from shared.settings import home  # noqa: PLC0415

    library = console.library(_settings(config))
    with console.progress(quiet=as_json) as listener:
        results = package_console.verify_all(
            library, name, check=lambda package: check_parity(package, home() / "checkpoints"), progress=listener
        )
    return package_console.show_verified(results, only_one=name is not None, as_json=as_json)


@app.command()
def sign(
    target: Annotated[str, typer.Argument(help="Installed package, or a package folder (with a / in it).")],
    key: KeyFile,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Check a package whole and put a signature on it, beside those it has."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.signing import sign_folder  # noqa: PLC0415
    from edge.packages.signing_key import SigningKey  # noqa: PLC0415

    signing_key = SigningKey.read(key)
    with console.progress(quiet=as_json) as listener:
        if "/" in target:
            manifest = sign_folder(Path(target), signing_key, listener)
        else:
            manifest = console.library(_settings(config)).sign(target, signing_key, progress=listener).manifest
    package_console.show_signed(manifest, signing_key.key_id, as_json=as_json)


@app.command()
def keygen(
    name: Annotated[str, typer.Argument(help="Name of the files: NAME.key and NAME.pub.")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")] = Path(),
    openssf: Annotated[bool, typer.Option("--openssf", help="A P-256 key for `export --openssf` instead.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair for signing packages and channels."""
    from edge import package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages import openssf as bundles  # noqa: PLC0415
    from edge.packages.signing_key import SigningKey  # noqa: PLC0415
    from edge.packages.trust import check_key_name  # noqa: PLC0415

    check_key_name(name)
    if openssf:
        key_id, private, public = bundles.generate(out, name)
    else:
        key = SigningKey.generate()
        key_id, (private, public) = key.key_id, key.write(out, name)
    package_console.show_key(key_id, private, public, as_json=as_json)


@trust_app.command("add")
def trust_add(
    file: Annotated[Path, typer.Argument(help="Public key (PEM).")],
    name: Annotated[str | None, typer.Option(help="What to call it; default: the file's name.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept packages that this key has signed. From the first key on, others are refused (edge.trust.policy)."""
    from edge import package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.trust import TrustedKeys  # noqa: PLC0415

    key = TrustedKeys(_settings(config).trust_dir).add(file, name)
    package_console.show_keys([key], as_json=as_json)


@trust_app.command("list")
def trust_list(config: Config = None, as_json: AsJson = False) -> None:
    """List the trusted keys."""
    from edge import package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.trust import TrustedKeys  # noqa: PLC0415

    package_console.show_keys(TrustedKeys(_settings(config).trust_dir).all(), as_json=as_json)


@trust_app.command("remove")
def trust_remove(
    name: Annotated[str, typer.Argument(help="Name or whole id of the key.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept packages of this key no longer."""
    from edge import package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.trust import TrustedKeys  # noqa: PLC0415

    package_console.show_keys([TrustedKeys(_settings(config).trust_dir).remove(name)], as_json=as_json)


@app.command()
def export(
    name: Name,
    target: Annotated[Path, typer.Argument(help="Folder to make.")],
    openssf: Annotated[
        Path | None,
        typer.Option(help="EC private key (PEM): write TARGET.sig too, a bundle that model-signing verifies."),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Copy a package into a folder that `isthmus edge pull FOLDER` installs elsewhere."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages import export as exporting  # noqa: PLC0415

    package = console.library(_settings(config)).show(name)
    with console.progress(quiet=as_json) as listener:
        exported = exporting.export(package, target, listener, openssf)
    package_console.show_exported(exported, as_json=as_json)


@app.command()
def publish(
    channel: Annotated[Path, typer.Argument(help="Folder of the channel; made if it is not there.")],
    packages: Annotated[list[str] | None, typer.Argument(help="Installed packages, or folders (with a /).")] = None,
    key: Annotated[Path | None, typer.Option("--key", help="The channel's private key (PEM): signs releases.")] = None,
    online_key: Annotated[
        Path | None, typer.Option(help="Key that only says what is the latest; default: the channel's.")
    ] = None,
    new_key: Annotated[Path | None, typer.Option(help="Key that takes the place of --key (rotation).")] = None,
    valid_days: Annotated[int, typer.Option(min=1, max=365, help="Days until the offer must be renewed.")] = 14,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Offer packages as the latest releases of a channel; without packages, renew its expiry.

    The folder can be served by any static web server; devices follow it with: isthmus edge pull URL#NAME
    """
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.channel import publisher  # noqa: PLC0415

    keys = publisher.keys_in(key, online_key)
    folders = [console.folder_of(_settings(config), each) for each in packages or ()]
    with console.progress(quiet=as_json) as listener:
        state = publisher.publish_now(channel, folders, keys, new_key=new_key, valid_days=valid_days, progress=listener)
    package_console.show_channel(state, as_json=as_json)


@app.command()
def rollback(name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Return to the version before the one in use. A running agent serves it from its next start."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    library = console.library(_settings(config))
    with console.progress(quiet=as_json) as listener:
        package = library.roll_back(name, progress=listener)
    package_console.show_package(library, package, as_json=as_json)


@app.command()
def rm(name: Name, config: Config = None, as_json: AsJson = False) -> None:
    """Remove a package, all its versions. One that a running agent serves is refused."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    package_console.show_freed(console.library(_settings(config)).remove(name), name, as_json=as_json)


@app.command()
def gc(config: Config = None, as_json: AsJson = False) -> None:
    """Remove unfinished downloads and versions that are neither in use nor the one to roll back to."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    package_console.show_freed(console.library(_settings(config)).collect(), None, as_json=as_json)


def _settings(config: Path | None) -> EdgeSettings:
    return load(EdgeSettings, "edge", config)
