"""Files of the pages, served under names with their hash so that they can be cached forever."""

import hashlib
from pathlib import Path
from typing import Final

import attrs
from starlette.responses import Response

from cortex.domain.errors import NotFoundError
from cortex.http.framework.api import Api, CheckedRequest
from cortex.http.framework.route import PUBLIC, Method, Route
from cortex.http.framework.tenancy import Tenancy

FOLDER: Final = Path(__file__).parent / "static"
PREFIX: Final = "/static/"
_MEDIA: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_FOR_EVER: Final = {"Cache-Control": "public, max-age=31536000, immutable"}


@attrs.frozen
class Asset:
    """One file."""

    name: str
    """With its hash."""
    content: bytes
    media: str


def _read(path: Path) -> Asset:
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    return Asset(f"{path.stem}.{digest}{path.suffix}", content, _MEDIA[path.suffix])


_ASSETS: Final = {path.name: _read(path) for path in sorted(FOLDER.iterdir())}
_BY_NAME: Final = {asset.name: asset for asset in _ASSETS.values()}


def url_of(name: str) -> str:
    """Return the URL of a file. Raises `KeyError` for an unknown one."""
    return PREFIX + _ASSETS[name].name


async def serve_asset(request: CheckedRequest[None, None], _: Api) -> Response:
    asset = _BY_NAME.get(request.path["name"])
    if asset is None:
        raise NotFoundError("there is no such file", hint="reload the page")
    return Response(asset.content, headers=_FOR_EVER, media_type=asset.media)


ROUTES: Final = (
    Route(
        method=Method.GET,
        path=f"{PREFIX}{{name}}",
        handle=serve_asset,
        role=PUBLIC,
        summary="Serve a file of the pages.",
        refuses=(404,),
        is_documented=False,
        tenancy=Tenancy.SHARED,
    ),
)
