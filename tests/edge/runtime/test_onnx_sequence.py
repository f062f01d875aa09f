"""One sequence and several side by side, over a scripted runtime: finish reasons, stops, grammar, cancellation."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from edge.runtime.onnx.request import Refused, chat_prompt, read
from edge.runtime.onnx.sampling import Row, SamplingRules
from edge.runtime.onnx.scheduler import Scheduler
from edge.runtime.onnx.sequence import Event, Failed, Finished, Job, Output, Progress, Sequence
from edge.runtime.onnx.text import TextStream, Vocabulary


def _bytes_alphabet() -> dict[str, int]:
    """GPT-2's printable character for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    characters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return {characters[byte]: byte for byte in range(256)}


def controls(*spellings: str) -> list[dict[str, object]]:
    flags = {"special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [{"id": 256 + index, "content": text, **flags} for index, text in enumerate(spellings)]


def vocabulary(*spellings: str) -> Vocabulary:
    """A tokenizer of single bytes; a character of three bytes is three tokens."""
    document = json.dumps(
        {
            "version": "1.0",
            "added_tokens": controls(*spellings),
            "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            "post_processor": None,
            "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
            "model": {"type": "BPE", "vocab": _bytes_alphabet(), "merges": []},
        }
    )
    return Vocabulary(document, end_tokens=[256])


VOCABULARY = vocabulary("<end>")


class Script:
    """A runtime that wants to say `tokens`, one after the other, whatever it is given."""

    def __init__(self, tokens: list[int], *, fail_at: int | None = None) -> None:
        self.tokens = tokens
        self.appended: list[list[int]] = []
        self._fail_at = fail_at
        self._at = 0

    def append(self, tokens: list[int]) -> None:
        self.appended.append(list(tokens))

    def logits(self) -> Row:
        if self._at == self._fail_at:
            raise RuntimeError("out of memory")
        row = np.zeros(260, dtype=np.float32)  # three more than the tokenizer knows
        row[259] = 50.0
        row[self.tokens[min(self._at, len(self.tokens) - 1)]] = 20.0
        self._at += 1
        return row


def said(text: str) -> list[int]:
    return [*VOCABULARY.tokens(text, control=True), 256]


def run(script: Script, **fields: object) -> list[Event]:
    """The events of one sequence."""
    events: list[Event] = []
    job = Job(
        index=0,
        prompt=[65, 66, 67],
        output_limit_tokens=50,
        rules=SamplingRules(temperature=0),
        emit=lambda _, event: events.append(event),
    )
    for name, value in fields.items():
        setattr(job, name, value)
    sequence = Sequence(job, script, VOCABULARY, end_tokens=frozenset({256}), prefill_tokens=2)
    while sequence.step():
        pass
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, Output))


def test_prompt_in_parts_then_text_then_the_end() -> None:
    script = Script(said("hello"))
    events = run(script)
    assert script.appended[:2] == [[65, 66], [67]]
    assert [event.processed_tokens for event in events if isinstance(event, Progress)] == [2, 3]
    assert text_of(events) == "hello"
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.prompt_tokens, last.output_tokens) == ("stop", 3, 6)


def test_ids_beyond_the_tokenizer_are_never_drawn() -> None:
    assert text_of(run(Script(said("ok")))) == "ok"


def test_the_limit_ends_with_length() -> None:
    events = run(Script(said("hello")), output_limit_tokens=2)
    assert text_of(events) == "he"
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "length"


@pytest.mark.parametrize(
    ("stops", "shown"), [(("ll",), "he"), (("lo", "l"), "he"), (("x",), "hello"), (("hello",), "")]
)
def test_stop_strings_over_token_borders(stops: tuple[str, ...], shown: str) -> None:
    events = run(Script(said("hello")), stops=stops)
    assert text_of(events) == shown
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "stop"


def test_the_beginning_of_a_stop_string_is_shown_when_it_does_not_become_one() -> None:
    assert text_of(run(Script(said("hel")), stops=("elx",))) == "hel"


def test_characters_of_several_tokens_come_whole() -> None:
    outputs = [event.text for event in run(Script(said("a€b"))) if isinstance(event, Output)]
    assert outputs == ["a", "€", "b"]


def test_half_a_character_at_the_end_becomes_a_mark() -> None:
    assert text_of(run(Script([0xE2, 256]))) == "\ufffd"


def test_log_probabilities_go_with_the_text() -> None:
    outputs = [event for event in run(Script(said("a€")), top_logprobs=1) if isinstance(event, Output)]
    assert [len(output.logprobs or ()) for output in outputs] == [1, 3]
    entry = (outputs[0].logprobs or [])[0]
    assert entry["token"] == "a"
    assert entry["top_logprobs"][0]["token"] == "a"


def test_a_grammar_cannot_be_left() -> None:
    grammar = '%llguidance {}\nstart: "yes" | "no"'
    events = run(Script([ord("z")] * 10), grammar=grammar)
    assert text_of(events) in ("yes", "no")
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "stop"


def test_a_control_token_in_the_output_is_no_text() -> None:
    other = vocabulary("<end>", "<think>")
    events: list[Event] = []
    job = Job(0, [65], 9, SamplingRules(temperature=0), lambda _, event: events.append(event))
    sequence = Sequence(job, Script([97, 257, 98, 256]), other, end_tokens=frozenset({256}), prefill_tokens=8)
    while sequence.step():
        pass
    assert text_of(events) == "ab"


def test_the_spelling_of_a_control_token_can_be_plain_text() -> None:
    assert 256 in VOCABULARY.tokens("a<end>b", control=True)
    inert = VOCABULARY.tokens("a<end>b", control=False)
    assert 256 not in inert
    assert b"".join(VOCABULARY.piece(token).raw for token in inert) == b"a<end>b"


# The scheduler.


class Slow:
    """A script whose steps wait for leave."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.leave = threading.Semaphore(0)

    def append(self, tokens: list[int]) -> None:
        self.script.append(tokens)

    def logits(self) -> Row:
        assert self.leave.acquire(timeout=30)
        return self.script.logits()


def scheduled(states: dict[int, object], slots: int) -> tuple[Scheduler, Callable[[int], Job], dict[int, list[Event]]]:
    events: dict[int, list[Event]] = {index: [] for index in states}
    changed = threading.Condition()

    def emit(index: int, event: Event) -> None:
        with changed:
            events[index].append(event)
            changed.notify_all()

    def start(job: Job) -> Sequence:
        state = states[job.index]
        if isinstance(state, Exception):
            raise state
        return Sequence(job, state, VOCABULARY, end_tokens=frozenset({256}), prefill_tokens=8)  # type: ignore[arg-type]

    def job(index: int) -> Job:
        return Job(index, [65], 50, SamplingRules(temperature=0), emit)

    def ended(index: int) -> bool:
        with changed:
            return changed.wait_for(lambda: any(isinstance(e, Finished | Failed) for e in events[index]), timeout=30)

    scheduler = Scheduler(start, slots=slots)
    scheduler.ended = ended  # type: ignore[attr-defined]
    return scheduler, job, events


def test_two_run_side_by_side_and_a_third_waits() -> None:
    states = {index: Slow(Script(said("abc"))) for index in range(3)}
    scheduler, job, events = scheduled(dict(states), slots=2)
    for index in range(3):
        scheduler.submit(job(index))
    for _ in range(4):
        states[0].leave.release()
        states[1].leave.release()
    assert scheduler.ended(0)  # type: ignore[attr-defined]
    assert scheduler.ended(1)  # type: ignore[attr-defined]
    states[2].leave.release(4)
    assert scheduler.ended(2)  # type: ignore[attr-defined]
    assert [text_of(events[index]) for index in range(3)] == ["abc"] * 3


def test_who_leaves_frees_the_slot_for_the_next() -> None:
    states = {0: Slow(Script([97] * 50)), 1: Slow(Script(said("b")))}
    scheduler, job, events = scheduled(dict(states), slots=1)
    first = job(0)
    scheduler.submit(first)
    scheduler.submit(job(1))
    scheduler.cancel(first)
    states[0].leave.release(50)
    states[1].leave.release(2)
    assert scheduler.ended(1)  # type: ignore[attr-defined]
    assert not any(isinstance(event, Finished) for event in events[0])


def test_a_failure_is_that_of_one_sequence() -> None:
    scheduler, job, events = scheduled(
        {0: Script(said("a"), fail_at=0), 1: RuntimeError("no memory"), 2: Script(said("c"))}, slots=1
    )
    for index in range(3):
        scheduler.submit(job(index))
    assert all(scheduler.ended(index) for index in range(3))  # type: ignore[attr-defined]
    assert isinstance(events[0][-1], Failed)
    assert isinstance(events[1][-1], Failed)
    assert text_of(events[2]) == "c"


# Requests.


def read_chat(**body: object) -> object:
    return read(
        {"messages": [], **body}, chat=True, vocabulary=VOCABULARY, prompt_of=lambda _: "hello", context_tokens=8
    )


@pytest.mark.parametrize("field", ["tools", "lora", "mirostat", "cache_prompt", "id_slot"])
def test_a_field_that_is_not_honoured_is_refused_by_name(field: str) -> None:
    with pytest.raises(Refused) as refused:
        read_chat(**{field: 1})
    assert refused.value.details["param"] == field
    assert refused.value.details["code"] == 400


def test_a_prompt_that_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(Refused) as refused:
        read({"prompt": [1] * 8}, chat=False, vocabulary=VOCABULARY, prompt_of=str, context_tokens=8)
    assert refused.value.details["type"] == "exceed_context_size_error"
    assert (refused.value.details["n_prompt_tokens"], refused.value.details["n_ctx"]) == (8, 8)


@pytest.mark.parametrize("prompt", [[], "", [999], [-1], None, [[1], []]])
def test_prompts_that_are_none(prompt: object) -> None:
    with pytest.raises(Refused):
        read({"prompt": prompt}, chat=False, vocabulary=VOCABULARY, prompt_of=str, context_tokens=8)


def test_output_is_limited_by_what_the_context_leaves() -> None:
    work = read({"prompt": [1, 2, 3]}, chat=False, vocabulary=VOCABULARY, prompt_of=str, context_tokens=8)
    assert work.output_limits_tokens == [5]
    work = read({"prompt": "ab", "max_tokens": 2}, chat=False, vocabulary=VOCABULARY, prompt_of=str, context_tokens=8)
    assert work.output_limits_tokens == [2]


def test_a_broken_grammar_is_refused_before_the_stream() -> None:
    with pytest.raises(Refused):
        read_chat(grammar="%llguidance {}\nstart: (")


def test_counting_refuses_tools_like_generating_does() -> None:
    with pytest.raises(Refused):
        chat_prompt({"messages": [], "tools": [1]}, VOCABULARY, str)


def test_the_random_seed_of_the_other_engine_is_none() -> None:
    work = read({"prompt": [1], "seed": 2**32 - 1}, chat=False, vocabulary=VOCABULARY, prompt_of=str, context_tokens=8)
    assert work.rules.seed is None
    assert replace(work.rules, seed=3).for_choice(2).seed == 5


def test_text_is_never_cut_inside_what_may_become_a_stop() -> None:
    stream = TextStream(["END"])
    assert [stream.feed(part) for part in (b"aE", b"N", b"x", b"EN", b"D more")] == ["a", "", "ENx", "", ""]
    assert stream.stopped
    assert stream.end() == ""
