"""A pod's place, by each means of confinement, and a client of a scripted model."""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from cortex.agent.models.anthropic import AnthropicModel, standard
from cortex.domain.confinement import Confinement
from tests.support.pod_place import CASES, USERS, Place, of_case
from tests.support.servers.scripted_model import API_KEY, ScriptedModel, scripted_model


@pytest.fixture(params=CASES, ids="-".join)
def confined(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as root and as another user."""
    yield from of_case(*request.param)


@pytest.fixture(params=[each for each in CASES if USERS[each[1]] == os.geteuid()], ids="-".join)
def confined_as_me(request: pytest.FixtureRequest) -> Iterator[tuple[Confinement, Place]]:
    """Each means, as the user that runs the tests."""
    yield from of_case(*request.param)


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedModel]:
    """A model for all tests of a module: each names its own by its mark."""
    with scripted_model() as running:
        yield running


@pytest.fixture
async def model(server: ScriptedModel) -> AsyncIterator[AnthropicModel]:
    client = AnthropicModel(standard(api_key=API_KEY, base_url=server.base_url))
    yield client
    await client.aclose()
