"""`isthmus chat`: talk to the fleet from a terminal."""

from __future__ import annotations

from typing import Annotated

import typer

from router.options import AsJson, Config, Key, Url

app = typer.Typer(add_completion=False)
run_app = typer.Typer(add_completion=False)


@app.command()
def chat(
    text: Annotated[str | None, typer.Argument(help="One question; without it a conversation begins.")] = None,
    model: Annotated[str, typer.Option(help="Model to ask.")] = "smollm2-135m-instruct",
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer in tokens.")] = 512,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="How freely words are chosen; 0: always the likeliest.")
    ] = 0.7,
    route: Annotated[str, typer.Option(help="auto, edge or cloud.")] = "auto",
    privacy: Annotated[str, typer.Option(help="as-scanned, public, personal or secret.")] = "as-scanned",
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Talk to a model through the router; each answer says where it came from and why.

    In the conversation: /route, /privacy, /why, /model, /new, /help, /exit. Exit codes: 0 done; 1 a request failed
    (with one question, or where no terminal reads along); 2 a wrong option.
    """
    from router.chat import CLASSES, ROUTES, Chat  # noqa: PLC0415 - keeps `--help` fast
    from router.chat_console import Terminal  # noqa: PLC0415
    from router.console import RouterClient  # noqa: PLC0415
    from router.reach import reach  # noqa: PLC0415

    if route not in ROUTES:
        raise typer.BadParameter(f"one of {', '.join(ROUTES)}", param_hint="--route")
    if privacy not in CLASSES:
        raise typer.BadParameter(f"one of {', '.join(CLASSES)}", param_hint="--privacy")
    if text is not None and not text.strip():
        raise typer.BadParameter("it is empty", param_hint="text")
    way = reach(url, key, config)
    talk = Chat(*way, model, max_tokens=max_tokens, temperature=temperature)
    talk.route, talk.privacy = route, privacy
    terminal = Terminal(talk, RouterClient(*way), as_json=as_json)
    return terminal.run() if text is None else terminal.once(text)


@run_app.command()
def run(
    model: Annotated[str, typer.Argument(help="Model to ask, as `isthmus list` and /v1/models name it.")],
    text: Annotated[str | None, typer.Argument(help="One question; without it a conversation begins.")] = None,
    url: Url = None,
    key: Key = None,
    config: Config = None,
    as_json: AsJson = False,
) -> int:
    """Talk to a model by its name: `isthmus chat --model MODEL`."""
    return chat(text=text, model=model, url=url, key=key, config=config, as_json=as_json)
