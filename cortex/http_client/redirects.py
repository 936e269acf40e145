"""Why a redirect that is not followed is refused, in words for people."""

from urllib.parse import urljoin, urlsplit

from cortex.domain.redaction import excerpt
from cortex.http_client.proxies import PORTS


def not_followed(url: str, location: str) -> str:
    """Say which server a redirect points to; path, query and password may be secrets."""
    return f"it points to {_origin_text(url, location)}, and redirects are not followed"


def _origin_text(url: str, location: str) -> str:
    try:
        parts = urlsplit(urljoin(url, location))
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in PORTS or not host or not host.isascii():
        return "an unusable URL"
    shown = f"[{host}]" if ":" in host else host
    is_usual = port in (None, PORTS[parts.scheme])
    return excerpt(f"{parts.scheme}://{shown}" + ("" if is_usual else f":{port}"))
