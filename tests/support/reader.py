"""A reader of pages without a browser: keeps cookies, finds the fields of a form, sends it."""

import re
from collections.abc import Mapping
from html import unescape
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import attrs

from cortex.domain.approvals.approval import Approval, ApprovalRequest
from cortex.postgres.session import Session
from cortex.store import approvals
from tests.support.people import user
from tests.support.servers.http_server import Answered, HttpServer

_MARKUP = re.compile(r"<(script|style|title).*?</\1>|<[^>]*>", re.DOTALL)


def path_of(request: ApprovalRequest) -> str:
    """Path of its page."""
    return f"/approvals/{request.id}"


def link_to(call: Session, request: ApprovalRequest, *, by: str = "mo") -> str:
    """Make a link; return its token."""
    return call(approvals.link, request.id, by=user(by))


def words_of(answered: Answered) -> str:
    """Text of a page, without its markup."""
    text = _MARKUP.sub(" ", answered.body.decode())
    return " ".join(unescape(text).split())


class _Fields(HTMLParser):
    """Collects the fields of the forms of a page, as they are when nothing was typed."""

    def __init__(self, action: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.buttons: dict[str, set[str]] = {}
        self._action = action
        self._is_inside = False
        self._area: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self._is_inside = (given.get("action") or "").partition("#")[0] == self._action
        name = given.get("name")
        if not self._is_inside or not name:
            return
        if tag == "button":
            self.buttons.setdefault(name, set()).add(given.get("value") or "")
        elif tag in {"input", "select", "textarea"}:
            self.fields[name] = given.get("value") or ""
            self._area = name if tag == "textarea" else None

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.fields[self._area] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            assert self._area is not None
            self.fields[self._area] = self.fields[self._area].removeprefix("\n")
            self._area = None
        elif tag == "form":
            self._is_inside = False


@attrs.define
class Reader:
    """One person's browser, without scripts."""

    server: HttpServer
    cookies: dict[str, str] = attrs.field(factory=dict)
    """By name; as if all had the same path."""

    @property
    def origin(self) -> dict[str, str]:
        """Header by which a browser names the origin of a form."""
        return {"Origin": f"http://{self.server.host}:{self.server.port}"}

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Answered:
        """Ask for one page; follows nothing."""
        return self._keep(self.server.ask(method, path, headers=self._sent(headers)))

    def look(self, request: ApprovalRequest) -> Answered:
        """Look at the page of a request."""
        return self.get(path_of(request))

    def fields(self, request: ApprovalRequest) -> dict[str, str]:
        """The fields of its form; empty if there is none."""
        return fields_in(self.look(request), path_of(request))

    def answer(
        self,
        request: ApprovalRequest,
        act: str,
        *,
        headers: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        **typed: Any,
    ) -> Answered:
        """Fill the form of the page as it is now, or `fields`, and press a button."""
        form = {**(self.fields(request) if fields is None else fields), "act": act, **typed}
        return self.send(path_of(request), form, headers=headers)

    def send(
        self, path: str, form: Mapping[str, str], *, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """POST a form, by default from a page of the same origin."""
        sent = {
            "Content-Type": "application/x-www-form-urlencoded",
            **(self.origin if headers is None else headers),
        }
        body = urlencode(form).encode()
        return self._keep(self.server.post(path, body=body, headers=self._sent(sent)))

    def sign_in(self, token: str) -> Answered:
        """Sign in with an API token."""
        return self.send("/sign-in", {"token": token, "next": ""})

    def open_link(self, approval_id: UUID, token: str) -> Answered:
        """Open a link, as the first GET does."""
        return self.get(f"/approvals/{approval_id}?t={token}")

    def _sent(self, headers: Mapping[str, str]) -> dict[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        return {**headers, **({"Cookie": cookie} if cookie else {})}

    def _keep(self, answered: Answered) -> Answered:
        for name, morsel in SimpleCookie(answered.headers.get("set-cookie", "")).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return answered


def fields_in(answered: Answered, action: str) -> dict[str, str]:
    """The fields of the form that is sent to a path."""
    parsed = _Fields(action)
    parsed.feed(answered.body.decode())
    return parsed.fields


def buttons_in(answered: Answered, action: str) -> set[str]:
    """Buttons of the form that is sent to a path."""
    parsed = _Fields(action)
    parsed.feed(answered.body.decode())
    return parsed.buttons.get("act", set())


def approver(server: HttpServer, name: str = "ana", *roles: str) -> Reader:
    """Somebody who is signed in."""
    reader = Reader(server)
    assert reader.sign_in(server.token(*(roles or ("approver",)), name=name)).status == 303
    return reader


def by_link(server: HttpServer, call: Session, request: ApprovalRequest) -> Reader:
    """Somebody who opened a link."""
    reader = Reader(server)
    assert reader.open_link(request.id, link_to(call, request)).status == 303
    return reader


def row_of(call: Session, request: ApprovalRequest) -> Approval:
    """The current state of a request."""
    return call(approvals.show, request.id)
