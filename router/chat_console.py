"""The conversation in a terminal: reads lines, streams answers, and knows a few words that begin with a slash."""

from __future__ import annotations

import sys
from collections.abc import Callable

from rich.console import Console

from router.chat import CLASSES, ROUTES, Answered, Chat
from router.console import RouterClient, ms, print_json
from shared.errors import BackendError, BackendStatus, IsthmusError

HELP = """\
/route auto|edge|cloud       where the next requests may run; auto leaves it to policy
/privacy as-scanned|public|personal|secret
                             the class of the next requests; a looser one than was found needs a key for it
/why                         why the last request went where it went
/model NAME                  another model
/new                         forget the conversation
/help, /exit"""


class Terminal:
    """Reads from standard input and writes to standard output."""

    def __init__(self, chat: Chat, client: RouterClient, *, as_json: bool) -> None:
        self._chat = chat
        self._client = client
        self._as_json = as_json
        self._console = Console(stderr=True, highlight=False)

    def once(self, text: str) -> int:
        """One question and its answer; 1 where it failed."""
        return 0 if self._say(text) else 1

    def run(self) -> int:
        """A conversation until the end of the input; 1 where nobody reads along and a request failed."""
        at_terminal = sys.stdin.isatty()
        if at_terminal and not self._as_json:
            self._note(f"{self._chat.model}. /help shows what can be said beside text; Ctrl-D ends.")
        failed = False
        while True:
            line = _read_line(self._console if at_terminal else None)
            if line is None or line.strip() in ("/exit", "/quit", "/bye"):
                return 1 if failed and not at_terminal else 0
            if line.startswith("/"):
                failed = not self._command(line) or failed
            elif line.strip():
                failed = not self._say(line) or failed

    def _say(self, text: str) -> bool:
        show: Callable[[str], None] = _ignore if self._as_json else _write
        try:
            answered = self._chat.say(text, show)
        except IsthmusError as error:
            if isinstance(error, BackendStatus) and self._chat.last is not None:
                self._told(self._chat.last, error.message)
            elif self._as_json:
                print_json({"error": error.message})
            else:
                self._note(f"error: {error.message}", style="red")
            if not isinstance(error, BackendError):
                raise
            return False
        self._told(answered, None)
        return True

    def _told(self, answered: Answered, error: str | None) -> None:
        facts = answered.facts()
        if self._as_json:
            print_json({"text": answered.text, **facts, "error": error})
            return
        if error is not None:
            self._note(f"error: {error}", style="red")
        else:
            _write("\n")
        speed = [f"first token {ms(answered.first_ms)}"] if answered.first_ms is not None else []
        parts = [facts["tier"], facts["backend"], facts["class"], facts["reason"], *speed]
        self._note(" · ".join(str(part) for part in parts if part), style="dim")

    def _command(self, line: str) -> bool:
        word, _, rest = line.strip().partition(" ")
        rest = rest.strip()
        if word == "/route" and rest in ROUTES:
            self._chat.route = rest
        elif word == "/privacy" and rest in CLASSES:
            self._chat.privacy = rest
        elif word == "/model" and rest:
            self._chat.model = rest
        elif word == "/new":
            self._chat.turns.clear()
        elif word == "/why":
            return self._why()
        elif word == "/help":
            self._note(HELP)
        else:
            known = any(line.startswith(f"{word} ") for line in HELP.splitlines())
            wrong = f"{word} takes one of the values below" if known else f"{word} is no command"
            self._note(f"error: {wrong}.", style="red")
            self._note(HELP)
            return False
        return True

    def _why(self) -> bool:
        last = self._chat.last
        decision_id = None if last is None else last.headers.get("x-isthmus-decision-id")
        if decision_id is None:
            self._note("Nothing was asked yet.")
            return False
        try:
            found = self._client.decision(decision_id)
        except IsthmusError as error:
            self._note(f"error: {error.message}", style="red")
            return False
        if self._as_json:
            print_json(found)
            return True
        for sentence in found["words"] or ["It ended before it was decided."]:
            self._note(f"  {sentence}")
        return True

    def _note(self, text: str, style: str | None = None) -> None:
        self._console.print(text, style=style, markup=False)


def _read_line(console: Console | None) -> str | None:
    """The next line without its end; None at the end of the input."""
    if console is not None:
        try:
            return console.input("> ")
        except EOFError:
            return None
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _write(text: str) -> None:
    sys.stdout.write(_inert(text))
    sys.stdout.flush()


def _inert(text: str) -> str:
    """Without what would steer a terminal: a model's answer must not move the cursor or set a title."""
    return "".join(c for c in text if c in "\n\t" or (c.isprintable() or ord(c) > 0x9F))


def _ignore(_: str) -> None:
    return
