"""A redirect of a model's address to another host: the key goes nowhere."""

import pytest
import trio

from cortex.agent.models.errors import ModelRejectedError
from cortex.domain.classification import failure_of
from tests.providers.conftest import APIS, asking, client_of
from tests.support.servers.model_apis import ModelApis
from tests.support.servers.web_server import open_server


@pytest.mark.parametrize("api", APIS)
async def test_a_redirect_to_another_host_gets_no_key(api: str) -> None:
    async with trio.open_nursery() as nursery:
        front, elsewhere = await open_server(nursery), await open_server(nursery)
        location = f"Location: http://127.0.0.1:{elsewhere.port}/v1/x\r\n"
        head = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\n"
        front.reply = f"{head}{location}\r\n".encode()
        async with client_of(api, ModelApis(front.port, [])) as client:
            with pytest.raises(ModelRejectedError) as caught:
                await client.respond(asking())
        nursery.cancel_scope.cancel()
    assert failure_of(caught.value).code == "redirected"
    assert f"http://127.0.0.1:{elsewhere.port}" in caught.value.message
    assert elsewhere.asked == []
