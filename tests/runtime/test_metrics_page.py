"""A scrape returns known figures at once, whatever the database does, and hardly queries it."""

from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing

from cortex.domain.breaker import BreakerState
from cortex.postgres.bridge import open_port
from cortex.postgres.database import Profile
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.metrics.metrics_catalogue import METRICS
from cortex.runtime.metrics.metrics_page import BREAKERS_MAX, EVERY_S, MetricsPage
from cortex.runtime.running import RunningJobs
from cortex.store import pulse as store
from tests.support.eventually import eventually_async
from tests.support.records.factories import Bench, a_claim
from tests.support.records.faulty_port import FaultyPort
from tests.support.records.rows import seeded_random
from tests.support.scrape import Scrape, read
from tests.support.servers.postgres import sql
from tests.support.servers.proxy import Proxy, proxy

SCRAPE_MAX_S = 5.0
"""A second, and room for a loaded machine; a call of a dead database takes ten."""


class Page:
    """A metrics page over a counting port, with the test's own breakers."""

    def __init__(self, port: FaultyPort) -> None:
        self.breakers: dict[str, BreakerState] = {}
        self.running = RunningJobs(slots=7)
        self.asked = 0
        counted = port.__call__

        async def count(*args: object, **kwargs: object) -> object:
            self.asked += 1
            return await counted(*args, **kwargs)  # type: ignore[arg-type]

        self.page = MetricsPage(
            count,  # type: ignore[arg-type]
            metrics=Metrics(job_types=["work"]),
            running=self.running,
            breakers=lambda: self.breakers,
        )

    async def scrape(self) -> Scrape:
        with trio.fail_after(SCRAPE_MAX_S):
            text, content_type = await self.page.exposition()
        assert content_type == "text/plain; version=0.0.4; charset=utf-8"
        return read(text)

    def age(self) -> None:
        """Make the known figures old, so that the next scrape reads again."""
        self.page._read_again_at = trio.current_time()


@pytest.fixture
async def page(port: FaultyPort, nursery: trio.Nursery) -> Page:
    made = Page(port)
    await nursery.start(made.page.run)
    return made


async def test_scrape_contains_every_declared_metric(page: Page) -> None:
    page.breakers = {"llm:gone": BreakerState.OPEN}
    output = (await page.scrape()).kinds
    for metric in METRICS:
        assert output[metric.name] == metric.kind, metric.name
    assert {name for name in output if name.startswith("cortex_")} == {m.name for m in METRICS}
    assert "process_resident_memory_bytes" in output


async def test_scrape_shows_the_state_of_the_whole_system(
    page: Page, bench: Bench, database: str
) -> None:
    first, *_ = await bench.claimed(2)
    await bench.submit(3)
    sql(
        database,
        "UPDATE cortex_worker.task SET run_at = run_at - interval '90 s' WHERE state = 'READY'",
    )
    sql(
        database,
        """INSERT INTO cortex.runner (name, interval_s, succeeded_at)
           VALUES ('retries', 30, now() - interval '3 min'),
                  ('triage', 60, now() - interval '3 min')""",
    )
    sql(
        database,
        """INSERT INTO cortex_worker.pause (kind, name, paused_by, reason, paused_at)
           VALUES ('queue', 'mail', 'ana', 'deploy', now() - interval '25 h'),
                  ('queue', 'bulk', 'ana', 'deploy', now() - interval '23 h')""",
    )
    sql(
        database,
        """INSERT INTO cortex.job_wait (job_id, kind, name, upto)
           SELECT id, 'signal', name, NULL FROM cortex.job, unnest('{paid,sent}'::text[]) AS n(name)
           WHERE status = 'PENDING' UNION ALL
           SELECT id, 'child', 'pages', 1 FROM cortex.job WHERE status = 'RUNNING'""",
    )
    page.running.add(first)
    found = await page.scrape()
    assert found["cortex_database_up"] == 1
    assert found["cortex_waiting_jobs", "signal"] == 3
    assert found["cortex_waiting_jobs", "child"] == 2
    assert found["cortex_waiting_jobs", "limit"] == found["cortex_waiting_jobs", "sleep"] == 0
    assert found["cortex_pauses_old"] == 1
    assert found["cortex_jobs", "PENDING"] == 3
    assert found["cortex_jobs", "RUNNING"] == 2
    assert found["cortex_jobs", "RETRY"] == found["cortex_jobs", "WAITING_FOR_APPROVAL"] == 0
    assert found["cortex_due_jobs"] == 3
    assert 90 <= found["cortex_oldest_due_seconds"] < 150
    assert found["cortex_dead_letters_unresolved", "OPEN"] == 0
    assert found["cortex_runner_late", "retries"] == 1
    assert found["cortex_runner_late", "triage"] == 0
    assert (found["cortex_slots"], found["cortex_running"]) == (7, 1)


async def test_many_scrapes_are_one_question(page: Page) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(page.scrape)
    await page.scrape()
    assert page.asked == 1
    assert EVERY_S <= page.page._read_again_at - page.page._read_at <= 60
    page.age()
    await page.scrape()
    assert page.asked == 2


async def test_pod_without_scrapes_sends_no_query(page: Page) -> None:
    await trio.testing.wait_all_tasks_blocked()
    assert page.asked == 0


async def test_an_outage_leaves_the_last_figures(
    page: Page, port: FaultyPort, bench: Bench
) -> None:
    await bench.submit(3)
    assert (await page.scrape())["cortex_jobs", "PENDING"] == 3
    port.refuse(store.figures)
    page.age()
    found = await page.scrape()
    assert found["cortex_database_up"] == 0
    assert found["cortex_jobs", "PENDING"] == 3
    assert found["cortex_database_age_seconds"] > 0
    asked = page.asked
    assert (await page.scrape())["cortex_database_up"] == 0
    assert page.asked == asked, "it is asked again after a while, however often it is scraped"
    page.age()
    assert (await page.scrape())["cortex_database_up"] == 1


@pytest.fixture
async def cut_off(database: str) -> AsyncIterator[tuple[Proxy, FaultyPort]]:
    with proxy(database) as network:
        async with open_port(Profile(dsn=network.dsn, bound_s=10.0), rng=seeded_random()) as opened:
            yield network, FaultyPort(opened)
            network.heal()


async def test_a_black_hole_holds_no_scrape_up(
    cut_off: tuple[Proxy, FaultyPort], nursery: trio.Nursery
) -> None:
    network, port = cut_off
    page = Page(port)
    await nursery.start(page.page.run)
    assert (await page.scrape())["cortex_database_up"] == 1
    network.blackhole()
    page.age()
    for _ in range(2):
        found = await page.scrape()
        assert found["cortex_database_up"] == 0
        assert found["cortex_jobs", "PENDING"] == 0
    network.heal()

    async def is_up() -> Scrape | None:
        page.age()
        found = await page.scrape()
        return found if found["cortex_database_up"] == 1 else None

    risen: Scrape | None = await eventually_async(is_up, what="the database is up again")
    assert risen


async def test_scrape_before_the_first_answer_has_no_system_figures(port: FaultyPort) -> None:
    found = await Page(port).scrape()  # its actor does not run
    assert found["cortex_database_up"] == 0
    assert not [key for key in found.values if key[0] in ("cortex_jobs", "cortex_due_jobs")]


async def test_breaker_states_are_shown_while_open_and_after_closing(
    page: Page,
) -> None:
    page.breakers = {"llm:well": BreakerState.CLOSED, "llm:gone": BreakerState.OPEN}
    found = await page.scrape()
    assert found["cortex_breaker_state", "llm:gone"] == 2
    assert ("cortex_breaker_state", "llm:well") not in found.values
    page.breakers = {"llm:gone": BreakerState.HALF_OPEN}
    assert (await page.scrape())["cortex_breaker_state", "llm:gone"] == 1
    page.breakers = {}
    assert (await page.scrape())["cortex_breaker_state", "llm:gone"] == 0


async def test_names_of_breakers_have_a_bound(page: Page) -> None:
    page.breakers = {f"http:{n}": BreakerState.OPEN for n in range(BREAKERS_MAX)}
    await page.scrape()
    page.breakers = {"http:one-more": BreakerState.HALF_OPEN, "http:another": BreakerState.OPEN}
    found = await page.scrape()
    states = {key[1]: value for key, value in found.values.items() if "breaker_state" in key[0]}
    assert len(states) == BREAKERS_MAX + 1
    assert states["other"] == 2


async def test_a_claim_that_ends_is_there_at_the_next_scrape(page: Page) -> None:
    page.page._metrics.claimed([a_claim()])
    assert (await page.scrape())["cortex_claims_total", "work"] == 1
    page.page._metrics.claimed([a_claim()])
    assert (await page.scrape())["cortex_claims_total", "work"] == 2
