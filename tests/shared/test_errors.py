"""The exception tree: every error crosses process boundaries whole and reads as an OpenAI error."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Iterator

import orjson
import pytest

from shared import errors
from shared.errors import (
    BackendStatus,
    ContextLengthExceeded,
    IsthmusError,
    SettingsError,
    Unauthenticated,
)
from shared.keys import bearer_of
from shared.openai.envelope import envelope, error_event, error_headers

_SPECIAL = {
    "BackendTimeout": lambda cls: cls("slow", phase="idle"),
    "BackendStatus": lambda cls: cls("busy", backend_status=429, retry_after_s=7),
    "InsufficientMemory": lambda cls: cls("too much", needed_bytes=2, free_bytes=1),
}


def _classes(cls: type[IsthmusError] = IsthmusError) -> Iterator[type[IsthmusError]]:
    yield cls
    for each in cls.__subclasses__():
        yield from _classes(each)


def _made(cls: type[IsthmusError]) -> IsthmusError:
    if cls.__name__ in _SPECIAL:
        return _SPECIAL[cls.__name__](cls)
    return cls("what happened", param="messages[0].content", code="a_code", retry_after_s=3)


@pytest.mark.parametrize("cls", list(_classes()), ids=lambda cls: cls.__name__)
def test_every_error_survives_pickling_with_all_it_knows(cls: type[IsthmusError]) -> None:
    error = _made(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert copy.__dict__ == error.__dict__
    assert str(copy) == str(error)
    assert envelope(copy) == envelope(error)


@pytest.mark.parametrize("cls", list(_classes()), ids=lambda cls: cls.__name__)
def test_every_error_is_an_openai_error_with_a_machine_code(cls: type[IsthmusError]) -> None:
    body = envelope(_made(cls))["error"]
    assert set(body) == {"message", "type", "param", "code"}
    assert body["code"]
    assert 400 <= cls.status <= 599


def test_an_error_raised_in_another_process_arrives_as_itself() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(Unauthenticated) as caught:
        # A function that every process can import, which this module is not under each import mode.
        pool.apply_async(bearer_of, (["Basic x"],)).get(timeout=60)
    assert caught.value.status == 401
    assert caught.value.code == "invalid_api_key"


def test_context_error_states_both_numbers() -> None:
    error = ContextLengthExceeded.of(needed_tokens=4400, limit_tokens=4096, param="messages")
    assert "4400" in error.message
    assert "4096" in error.message
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", "messages")


def test_capacity_errors_say_when_to_ask_again() -> None:
    for cls in _classes(errors.CapacityError):
        assert cls("no room").retry_after_s == 1
        assert cls.status in (429, 503)


@pytest.mark.parametrize("cls", list(_classes()), ids=lambda cls: cls.__name__)
def test_fo_03_no_error_says_when_to_ask_again_and_that_it_is_of_no_use(cls: type[IsthmusError]) -> None:
    """Some clients heed the time alone. Also after the error has crossed a process."""
    final = error_headers(pickle.loads(pickle.dumps(_made(cls).for_good())))
    assert final["x-should-retry"] == "false" and "Retry-After" not in final
    assert "x-should-retry" not in error_headers(_made(cls))


def test_backend_status_keeps_what_the_backend_said() -> None:
    error = pickle.loads(pickle.dumps(BackendStatus("refused", backend_status=429, retry_after_s=7)))
    assert (error.backend_status, error.retry_after_s, error.status) == (429, 7, 502)


def test_the_tree_in_the_module_text_names_every_class() -> None:
    drawn = errors.__doc__ or ""
    # A tier's own are drawn there.
    own = {cls.__name__ for cls in _classes() if cls.__module__.startswith(f"{errors.__name__}.")}
    assert len(own) > 30
    assert {name for name in own if name not in drawn} == set()
    assert own == set(errors.__all__)


def test_error_event_is_one_event_without_done() -> None:
    event = error_event(SettingsError("broken"))
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n\n") == 1
    assert orjson.loads(event[6:])["error"]["message"] == "broken"
