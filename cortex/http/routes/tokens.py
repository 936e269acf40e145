"""`/v1/tokens`: who has access to the HTTP API; never the tokens themselves."""

from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.token import Role
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.cursor import limit_field
from cortex.http.framework.resource import page_of, schema_of_page
from cortex.http.framework.route import answer, read
from cortex.http.framework.shape import field, text
from cortex.http.framework.tenancy import Tenancy
from cortex.store import tokens
from cortex.view.resources.tokens import TOKENS

NAME_MAX: Final = 100


@attrs.frozen(kw_only=True)
class TokensQuery:
    """Selects tokens, the newest first."""

    name: str = text(doc="only this holder's", length_max=NAME_MAX, default="")
    with_ended: bool = field(doc="include revoked and expired ones", default=False)
    limit: int = limit_field(tokens.PAGE_MAX)


async def list_tokens(request: CheckedRequest[TokensQuery, None], api: Api) -> Response:
    query = request.query
    rows = await api.port(
        tokens.page, name=query.name or None, with_ended=query.with_ended, limit=query.limit
    )
    return answer(page_of(TOKENS, rows))


ROUTES: Final = (
    read(
        "/v1/tokens",
        list_tokens,
        "List who has access to this API, without the tokens themselves.",
        role=Role.ADMIN,
        query=TokensQuery,
        answers={200: schema_of_page(TOKENS, doc="Tokens, the newest first.")},
        tenancy=Tenancy.INSTALLATION,
    ),
)
