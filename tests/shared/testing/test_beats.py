"""The played agent reports in order, tells changes before going on, and drains at its end."""

from __future__ import annotations

from shared.fleet import BackendState, Heartbeat, ThermalLevel
from shared.testing import answers
from shared.testing.beats import Beats
from shared.testing.upstream import Upstream


def _beats(upstream: Upstream) -> list[Heartbeat]:
    return [Heartbeat.model_validate_json(exchange.body) for exchange in upstream.exchanges]


async def test_beats_rise_in_sequence_and_end_with_draining() -> None:
    async with Upstream(default=lambda _: answers.Answer(status=204)) as router:
        async with Beats(router.url, "http://127.0.0.1:1", backend_id="edge-7") as beats:
            await router.wait_exchanges(3)
            await beats.change(level=ThermalLevel.CRITICAL)
            assert _beats(router)[-1].level is ThermalLevel.CRITICAL
        seen = _beats(router)
    assert {exchange.path for exchange in router.exchanges} == {"/fleet/v1/heartbeats"}
    assert [beat.sequence for beat in seen] == list(range(1, len(seen) + 1))
    assert {beat.backend_id for beat in seen} == {"edge-7"}
    assert len({beat.instance for beat in seen}) == 1
    assert seen[0].state is BackendState.READY
    assert seen[-1].state is BackendState.DRAINING


async def test_a_router_that_went_first_does_not_matter() -> None:
    async with (
        Upstream(default=lambda _: answers.Answer(status=204)) as router,
        Beats(router.url, "http://127.0.0.1:1"),
    ):
        await router.refuse()
