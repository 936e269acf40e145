"""All routes of the API; each resource declares its own."""

from typing import Final

from cortex.http import health, metrics
from cortex.http.framework import openapi
from cortex.http.framework.route import Route
from cortex.http.page import approval, assets, inbox, signing_in
from cortex.http.routes import (
    approvals,
    breakers,
    callbacks,
    costs,
    dead_letter_changes,
    dead_letters,
    effects,
    facts,
    freeze,
    job_changes,
    job_events,
    job_records,
    job_results,
    job_resume,
    job_submit,
    job_tree,
    jobs,
    logs,
    outbox,
    pauses,
    plain_lists,
    pods,
    queue_health,
    queues,
    retention,
    schedules,
    signals,
    tokens,
)

ROUTES: Final[tuple[Route, ...]] = (
    *health.ROUTES,
    *metrics.ROUTES,
    *approvals.ROUTES,
    *job_submit.ROUTES,
    *jobs.ROUTES,
    *job_records.ROUTES,
    *job_resume.ROUTES,
    *job_tree.ROUTES,
    *job_changes.ROUTES,
    *job_results.ROUTES,
    *job_events.ROUTES,
    *logs.ROUTES,
    *dead_letter_changes.ROUTES,
    *dead_letters.ROUTES,
    *breakers.ROUTES,
    *effects.ROUTES,
    *freeze.ROUTES,
    *facts.ROUTES,
    *costs.ROUTES,
    *plain_lists.ROUTES,
    *pods.ROUTES,
    *queue_health.ROUTES,
    *pauses.ROUTES,
    *queues.ROUTES,
    *retention.ROUTES,
    *schedules.ROUTES,
    *outbox.ROUTES,
    *signals.ROUTES,
    *callbacks.ROUTES,
    *tokens.ROUTES,
    *approval.ROUTES,
    *inbox.ROUTES,
    *signing_in.ROUTES,
    *assets.ROUTES,
)
"""In the order of the OpenAPI document; the document's own route comes last."""

ALL: Final[tuple[Route, ...]] = (*ROUTES, openapi.route(ROUTES))
