"""RD-03 kind: a Sentinel group or a Cluster fails over, and the primary before it freezes or becomes a replica.

Who knows the new one may hang too: the first sentinel, or the only node that the address names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.testing.redis_pair import connections, offset, until
from shared.testing.redis_server import Cluster, SentinelGroup, binary
from tests.contracts.test_state_failover import Routers, until_it_answers, used_at_once
from tests.contracts.test_state_store import beat

pytestmark = [
    pytest.mark.redis,
    pytest.mark.skipif(binary() is None, reason="redis-server is not installed"),
]


@pytest.fixture
def group() -> Iterator[SentinelGroup]:
    with SentinelGroup() as opened:
        yield opened


@pytest.mark.parametrize("how", ["demoted", "frozen"])
async def test_a_sentinel_group_is_followed_by_writers_and_readers(group: SentinelGroup, how: str) -> None:
    """The first sentinel hangs too, so that the others must be asked within the limit."""
    routers = Routers(group.url, limit_s=1)
    writer, reader = routers.store(), routers.store()
    try:
        await until_it_answers(lambda: writer.publish(beat("a")))
        await until_it_answers(reader.reports)
        for link in routers.links:
            await used_at_once(link)
        group.wait_replicated()
        if how == "demoted":
            assert group.sentinels[1].command("SENTINEL", "FAILOVER", "mymaster").startswith(b"+OK")
        else:
            group.master.freeze()
        await until(lambda: b"role:master" in group.replica.command("INFO", "replication"), 30)
        group.sentinels[0].freeze()
        await until_it_answers(lambda: writer.publish(beat("a", sequence=2)), 15)
        await until_it_answers(reader.reports, 15)
        assert [r.sequence for r in await reader.reports()] == [2]
        group.master.thaw()
        await until(lambda: b"role:slave" in group.master.command("INFO", "replication"), 30)
        await until_it_answers(lambda: writer.publish(beat("a", sequence=3)))
        assert [r.sequence for r in await reader.reports()] == [3]
        await until(lambda: connections(group.master) <= len(group.sentinels) * 2)
    finally:
        group.master.thaw()
        group.sentinels[0].thaw()
        await routers.close()


@pytest.mark.parametrize("how", ["demoted", "frozen"])
async def test_a_cluster_is_followed_by_writers_and_readers(how: str) -> None:
    """The address names the node that hangs, and nobody else tells where the others are."""
    with Cluster(replicas=True) as cluster:
        primary, replica = cluster.primary_and_replica_of("isthmus:{fleet}:v2:heads")
        routers = Routers(f"redis+cluster://127.0.0.1:{primary.port}", limit_s=1)
        writer, reader = routers.store(), routers.store()
        try:
            await until_it_answers(lambda: writer.publish(beat("a")))
            await until_it_answers(reader.reports)
            for link in routers.links:
                await used_at_once(link)
            await until(lambda: offset(primary) == offset(replica))
            if how == "demoted":
                assert replica.command("CLUSTER", "FAILOVER").startswith(b"+OK")
            else:
                primary.freeze()
                assert replica.command("CLUSTER", "FAILOVER", "TAKEOVER").startswith(b"+OK")
            await until(lambda: b"role:master" in replica.command("INFO", "replication"))
            await until_it_answers(lambda: writer.publish(beat("a", sequence=2)), 20)
            await until_it_answers(reader.reports, 20)
            assert [r.sequence for r in await reader.reports()] == [2]
            primary.thaw()
            await until(lambda: b"role:slave" in primary.command("INFO", "replication"), 20)
            await until_it_answers(lambda: writer.publish(beat("a", sequence=3)))
            await until_it_answers(reader.reports)
            assert [r.sequence for r in await reader.reports()] == [3]
        finally:
            primary.thaw()
            await routers.close()
