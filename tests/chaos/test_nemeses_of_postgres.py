"""Each fault of the network, the server and the model really happens, and is healed."""

import asyncio
import json
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from chaos.nemeses import absent
from chaos.nemeses.blackhole import Blackhole
from chaos.nemeses.deaf import Deaf
from chaos.nemeses.end_session import EndSession
from chaos.nemeses.full_disk import FullDisk
from chaos.nemeses.kill_backend import KillBackend
from chaos.nemeses.long_snapshot import LongSnapshot
from chaos.nemeses.lose_reply import LoseReply
from chaos.nemeses.model import KINDS, Model
from chaos.nemeses.nemesis import Fault
from chaos.nemeses.refuse import Refuse
from chaos.nemeses.reset import Reset
from chaos.nemeses.restart import Restart
from chaos.nemeses.slow import Slow
from chaos.nemeses.term_without_database import TermWithoutDatabase
from chaos.nemeses.too_many import TooMany
from chaos.windows import Window
from chaos.workloads.program import Op
from cortex.demo.fault_file import parse_rules
from tests.support.eventually import eventually
from tests.support.playing import BROKEN, BROKEN_KEY, Playing

ONE: dict[str, Any] = {"whom": "one", "place": 0, "writes": True}
SHORT_S = 0.5
"""Within this nothing comes through a broken network."""


def started(playing: Playing) -> datetime:
    """When the server was."""
    (row,) = playing.sql("SELECT pg_postmaster_start_time() AS at")
    at: datetime = row["at"]
    return at


async def ask(dsn: str, *, within_s: float = 5.0) -> float:
    """Connect and ask something; how long that took, in seconds."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(within_s):
        connection = await asyncpg.connect(dsn)
        try:
            await connection.fetch("SELECT 1")
        finally:
            connection.terminate()
    return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize("way", ["up", "down"])
def test_black_hole_passes_no_answers(playing: Playing, way: str) -> None:
    line = playing.pod(0).line
    fault = playing.begin(Blackhole(), **ONE, way=way)
    playing.until(lambda: line.holds(is_up=way != "down"), what="the line is broken")
    with pytest.raises(TimeoutError):
        playing(ask(line.dsn, within_s=SHORT_S))
    fault.end()
    playing(ask(line.dsn))


def test_a_slow_line_is_slow(playing: Playing) -> None:
    line = playing.pod(0).line
    fault = playing.begin(Slow(), **ONE, delay_s=0.1)
    playing.until(lambda: line.delay_s, what="the line is slow")
    assert playing(ask(line.dsn)) > 0.4  # two questions, there and back
    fault.end()
    playing(ask(line.dsn))


def test_refusing_line_cuts_everybody_off(playing: Playing) -> None:
    line = playing.pod(0).line
    fault = playing.begin(Refuse(), **{**ONE, "whom": "all"})
    playing.until(lambda: line.is_taken and not line.relays, what="everybody is cut off")
    with pytest.raises(OSError, match="Connect"):
        playing(ask(line.dsn))
    fault.end()
    playing(ask(line.dsn))


def test_connections_are_reset_in_a_write(playing: Playing) -> None:
    line = playing.pod(0).line
    before = set(line.relays)
    met = playing.inject_into(Window.COMMIT, Reset(), **ONE)
    assert met == {"pods": ["p1"], "windows": [Window.COMMIT]}
    assert not before & line.relays


def test_replies_of_commits_are_lost(playing: Playing) -> None:
    met = playing.inject(LoseReply(), for_s=30.0, **ONE, count=2)
    assert met == {"pods": ["p1"], "windows": [Window.COMMIT], "lost": 2}


def test_a_line_has_one_fault_at_a_time_and_one_pod_s_takes_the_next(playing: Playing) -> None:
    one, other = playing.stage.pod_lines
    first = playing.begin(Slow(), **ONE, delay_s=0.01)
    playing.until(lambda: one.is_taken, what="it has begun")
    assert playing.inject(Reset(), **{**ONE, "writes": False})["pods"] == ["p2"]
    second = playing.begin(Slow(), **ONE, delay_s=0.01)
    playing.until(lambda: other.is_taken, what="it has begun")
    assert "missed" in playing.inject(Reset(), **ONE)
    first.end()
    second.end()


def test_a_session_is_ended_in_a_write(playing: Playing) -> None:
    ended = "terminating connection due to administrator command"
    before = playing.stage.postgres.log.count(ended)
    met = playing.inject_into(Window.COMMIT, EndSession(), place=1, writes=True, session=0)
    assert (met["pod"], met["windows"]) == ("p2", [Window.COMMIT])
    playing.until(
        lambda: playing.stage.postgres.log.count(ended) > before, what="Postgres logs the end"
    )


@pytest.mark.parametrize("how", ["end", "blackhole"])
def test_deaf_fault_silences_one_listener(playing: Playing, how: str) -> None:
    pod = playing.pod(0)

    def listening() -> set[int]:
        rows = playing.sql("SELECT pid FROM pg_stat_activity WHERE query ILIKE 'listen %'")
        return {row["pid"] for row in rows} & {r.statements.backend_pid for r in pod.line.relays}

    before: set[int] = eventually(listening, what="it listens")
    if how == "end":
        assert playing.inject(Deaf(), place=0, how=how)["sessions"] >= 1
        eventually(lambda: before - listening(), what="a session is gone")
        return
    fault = playing.begin(Deaf(), place=0, how=how)
    relays = pod.line.relays
    playing.until(lambda: any(r.is_held for r in relays), what="nothing passes one connection")
    assert not all(relay.is_held for relay in relays)
    fault.end()
    assert not any(relay.is_held for relay in relays)


def test_the_server_recovers_from_the_death_of_a_backend(playing: Playing) -> None:
    before = started(playing)
    killed = "was terminated by signal 9"
    count = playing.stage.postgres.log.count(killed)
    met = playing.inject(KillBackend(), session=0)
    assert "missed" not in met
    eventually(
        lambda: playing.stage.postgres.log.count(killed) > count, what="Postgres logs the death"
    )
    assert met["away_s"] < 20
    assert started(playing) == before


def test_the_server_is_restarted(playing: Playing) -> None:
    before = started(playing)
    fault = playing.begin(Restart(), how="immediate", down_s=60.0)
    eventually(lambda: not playing(playing.stage.postgres.is_up()), what="it is down")
    fault.end()
    assert started(playing) > before


def test_open_snapshot_pins_dead_rows_until_it_ends(playing: Playing) -> None:
    pinned = """
        SELECT FROM pg_stat_activity
        WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL
    """
    fault = playing.begin(LongSnapshot())
    eventually(lambda: playing.sql(pinned), what="it is open")
    fault.end()
    eventually(lambda: not playing.sql(pinned), what="it is gone")


def test_no_connection_is_to_be_had(playing: Playing) -> None:
    line = playing.pod(0).line
    fault = playing.begin(TooMany(), place=0)

    async def is_refused() -> bool:
        try:
            await ask(line.dsn)
        except asyncpg.TooManyConnectionsError:
            return True
        except (OSError, asyncpg.PostgresConnectionError):
            pass  # the reset that comes first
        return False

    eventually(lambda: playing(is_refused()), what="connections are refused")
    fault.end()
    playing(ask(line.dsn))


@pytest.mark.skipif(FullDisk.name in absent(), reason=absent().get(FullDisk.name, ""))
def test_full_disk_fails_writes_until_it_ends(playing: Playing) -> None:
    fault = playing.begin(FullDisk())
    table = "CREATE TABLE public.grown AS SELECT repeat('x', 1000) FROM generate_series(1, 2000)"
    with pytest.raises(asyncpg.DiskFullError):
        playing.sql(table)
    fault.end()
    playing.sql(table)
    playing.sql("DROP TABLE public.grown")


def test_a_pod_ends_while_the_server_is_away(playing: Playing) -> None:
    pod = playing.pod(0)
    met = playing.inject(TermWithoutDatabase(), place=0, first="stop", apart_s=0.05)
    assert met["took_s"] is not None
    assert not pod.is_alive
    assert met["away_s"] > 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_model_knows_each_of_its_faults(kind: str) -> None:
    fault = Fault(
        number=1, at_s=3.0, nemesis=Model.name, for_s=2.0, detail={"kind": kind, "share": 0.5}
    )
    (rule,) = parse_rules(json.dumps({"rules": Model().rules(fault)}), "test")
    assert (rule.after_s, rule.for_s, rule.share) == (3.0, 2.0, 0.5)


def test_calls_that_the_model_broke_are_counted(playing: Playing) -> None:
    playing.submit((Op.MODEL, 10), key=BROKEN_KEY)

    def met() -> dict[str, Any]:
        fault = Fault(number=BROKEN.number, at_s=0, nemesis="model", for_s=0, detail=BROKEN.detail)
        return playing(Model().inject(playing.stage, fault))

    eventually(lambda: met()["calls"], what="a call is broken")
    assert met()["windows"] == [Window.MODEL_CALL]
