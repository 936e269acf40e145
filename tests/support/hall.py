"""Parts of a pod that serve waiting and following clients, without the rest of the pod."""

import random

from cortex.domain.clock import system_chance
from cortex.durable.context import Context
from cortex.durable.registry import job
from cortex.postgres.bridge import Port
from cortex.runtime.clients.answer_listener import AnswerListener
from cortex.runtime.clients.job_feeds import JobFeeds
from cortex.runtime.clients.result_waiters import ResultWaiters
from cortex.runtime.metrics.metrics import Metrics
from cortex.runtime.metrics.metrics_page import MetricsPage
from cortex.runtime.running import RunningJobs


@job("digest")
async def digest(_: Context, urls: list[str] | None = None, note: str | None = None) -> str:
    """Takes what tests give it; nothing here runs it."""
    return f"{urls} {note}"


JOB_TYPES = (digest,)
"""What the pod of a test's server knows."""


class Hall:
    """The actors, as `cortex.runtime.pod` connects them."""

    def __init__(self, port: Port, *, rng: random.Random) -> None:
        self.metrics = Metrics(job_types=[each.name for each in JOB_TYPES])
        self.waiters = ResultWaiters(port)
        self.answers = AnswerListener(port, new_id=system_chance().new_id, rng=rng)
        self.feeds = JobFeeds(port, watch=self.answers.watch, unwatch=self.answers.unwatch)
        self.answers.hear = self.feeds.hear
        running = RunningJobs(slots=1)
        self.page = MetricsPage(port, metrics=self.metrics, running=running, breakers=dict)
        self.actors = (self.waiters, self.answers, self.feeds, self.page)
