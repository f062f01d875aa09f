"""Calibration finds the shares that made the times, and predicts other contexts with them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.devices.unit import Efficiency
from edge.scheduling.calibration import LONG_TOKENS, SHORT_TOKENS, Samples, fit, workload_s
from edge.scheduling.workload import Workload, decode, prefill
from tests.edge.scheduling.models import MODEL, processor


def prompt(tokens: int) -> Workload:
    return prefill(tokens, batch_tokens=128, ubatch_tokens=63)


def samples(share: Efficiency) -> Samples:
    unit = processor().model_copy(update={"efficiency": share})
    works = (decode(SHORT_TOKENS), decode(LONG_TOKENS), prompt(SHORT_TOKENS), prompt(LONG_TOKENS))
    return Samples(*(workload_s(MODEL, work, unit) for work in works))


SHARES = st.builds(
    Efficiency,
    product_flops=st.floats(0.5, 5),
    product_bytes=st.floats(0.3, 2),
    attention_decode_flops=st.floats(0.02, 0.3),
    attention_prefill_flops=st.floats(0.02, 0.3),
)


@settings(max_examples=25, deadline=None)
@given(share=SHARES)
def test_other_contexts_are_predicted_from_two_short_ones(share: Efficiency) -> None:
    found = fit(MODEL, processor(), samples(share), batch_tokens=128, ubatch_tokens=63)
    true, fitted = (processor().model_copy(update={"efficiency": each}) for each in (share, found))
    for work in (decode(128), decode(4096), prompt(128), prompt(4096)):
        assert workload_s(MODEL, work, fitted) == pytest.approx(workload_s(MODEL, work, true), rel=0.02)


def test_attention_slows_decoding_at_depth_as_measured_not_as_bandwidth_allows() -> None:
    """A plain roofline predicts three times what an engine reaches after 3,500 tokens."""
    plain = processor()
    measured = Samples(1 / 147, 1 / 88, 63 / 215, 640 / 190, long_tokens=640)
    share = fit(MODEL, plain, measured, batch_tokens=128, ubatch_tokens=63)
    fitted = plain.model_copy(update={"efficiency": share})
    assert 1 / workload_s(MODEL, decode(3500), plain) > 70
    assert 1 / workload_s(MODEL, decode(3500), fitted) < 35


@pytest.mark.parametrize("noise", [Samples(0.02, 0.01, 0.3, 3.0), Samples(0.01, 0.02, 3.0, 0.3)])
def test_samples_that_contradict_the_model_still_give_shares_within_limits(noise: Samples) -> None:
    share = fit(MODEL, processor(), noise, batch_tokens=128, ubatch_tokens=63)
    assert all(0 < value <= 100 for value in share.model_dump().values())
