"""Asks the router one question, as an application would, and ends well only with an answer: the pod of `helm test`.

Arguments: base address, body of the question, seconds that it may take, and the file with the key if there is one.
Without a key it proves what can be proved without: the router is ready, and it turns strangers away.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ANSWER_LIMIT_S = 120
PAUSE_S = 2
UNREACHABLE = 0
NOT_YET = (UNREACHABLE, 404, 429, 502, 503, 504)
"""No connection, a model that no backend serves so far, no capacity: what passes while models are still loaded."""


def main(base: str, question: str, limit_s: str, *key_file: str) -> str:
    """What was proved, in one line; SystemExit with the last answer where nothing was."""
    deadline_s = time.monotonic() + float(limit_s)
    last = "nothing was asked"
    while True:
        status, body = call(f"{base}/readyz")
        if status == 200:
            key = Path(key_file[0]).read_text("utf-8").strip() if key_file else None
            status, body = call(f"{base}/v1/chat/completions", question, key)
            if key is None and status == 401:
                return "The router is ready and asks for a key. Set tests.key.existingSecret to have a question asked."
            if key is not None and status == 200 and has_text(body):
                return "The router answered."
        last = f"the last answer had status {status}" if status else "the router cannot be reached"
        if status not in NOT_YET or time.monotonic() + PAUSE_S > deadline_s:
            sys.exit(f"The question was not answered: {last}{code_of(body)}.")
        time.sleep(PAUSE_S)


def call(url: str, body: str | None = None, key: str | None = None) -> tuple[int, bytes]:
    """Status and body; status 0 where there was no answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url, body.encode() if body else None, headers)  # noqa: S310 - http by the chart
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except OSError:
        return UNREACHABLE, b""


def has_text(body: bytes) -> bool:
    """Whether a chat completion says anything."""
    return bool(json.loads(body)["choices"][0]["message"]["content"].strip())


def code_of(body: bytes) -> str:
    """The code of an error in the OpenAI envelope; never its text."""
    try:
        return f", code {json.loads(body)['error']['code']}"
    except (ValueError, KeyError, TypeError):
        return ""


if __name__ == "__main__":
    sys.stdout.write(main(*sys.argv[1:]) + "\n")
