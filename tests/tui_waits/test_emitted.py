"""What a job's code emits, on the screen of the job."""

from cortex.domain.answer_text import AnswerPiece
from cortex.domain.job import StepKind
from cortex.postgres.database import Profile
from cortex.store import job_screen
from cortex_tui.model.stream import EMITTED, Stream
from tests.support.hostile import treacherous
from tests.support.life import Life
from tests.support.servers.kept_sessions import kept_session
from tests.support.terminal.tui import FakeBackend, on_asyncio, sitting
from tests.support.terminal.tui_job import a_step
from tests.tui_waits.test_lists import PARENT


def a_piece(text: str) -> AnswerPiece:
    return AnswerPiece(
        job_id=PARENT, attempt=1, key="ask", call=1, offset=0, end=len(text), text=text
    )


def lines_of(stream: Stream) -> list[str]:
    assert stream.answer is not None
    return list(stream.answer.lines)


def test_each_chunk_is_a_line_once() -> None:
    stream = Stream()
    chunks = ((1, '"page 1\\n"'), (2, '{"page": 2}'), (2, '{"page": 2}'), (3, '"cut off'))
    assert [stream.emitted(*each) for each in chunks] == [True, True, False, True]
    assert lines_of(stream) == ["page 1", '{"page": 2}', '"cut off', ""]
    assert stream.is_over


def test_a_model_that_speaks_keeps_the_pane() -> None:
    stream = Stream()
    assert stream.take(a_piece("Dear customer"), now=1.0)
    assert stream.emitted(1, '"page 1"')
    assert stream.key == "ask"
    stream.committed("ask")
    assert stream.emitted(2, '"page 2"')
    assert (stream.key, lines_of(stream)) == (EMITTED, ["page 1", "page 2", ""])


@on_asyncio
async def test_screen_of_a_job_shows_what_it_emits(cluster: FakeBackend) -> None:
    steps = [a_step(1, "emit", "emit", chunk='"page 1 of 3"')]
    job_id = cluster.add(1, status="RUNNING", attempt=1, steps=steps)
    async with sitting(cluster, size=(80, 24)) as seat:
        await seat.press("enter")
        await seat.pass_time(2)
        assert "page 1 of 3" in seat.text
        assert "stream emitted" in seat.text
        bad = a_step(2, "emit#2", "emit", chunk='"a\\u001b[2Jb"')
        cluster.change(job_id, steps=[*steps, bad], status="COMPLETED", finished_at=bad.finished_at)
        await seat.pass_time(2)
        assert "[2Jb" in seat.text, "it stays when the job has ended"
        assert treacherous(seat.text) == []


def test_only_what_code_emitted_is_read_with_the_steps(database: str) -> None:
    with kept_session(Profile(dsn=database)) as call:
        life = Life(call, database)
        life.type()
        life.job()
        pod = life.pod()
        claim = life.claim(pod)
        life.step(pod, claim, 1, "plan")
        life.step(pod, claim, 2, "emit", kind=StepKind.EMIT)
        job_id = claim.lease.job_id
        newest = call(job_screen.look, job_id, after=None, limit=10).steps
        later = call(job_screen.look, job_id, after=1, limit=10).steps
        before = call(job_screen.steps_before, job_id, before=3, limit=10)
    assert [each.chunk for each in newest] == [None, '"out"']
    assert [each.chunk for each in later] == ['"out"']
    assert [each.chunk for each in before] == [None, None]
