"""`cortex mcp`: serves tools to an assistant, which operates Cortex with them."""

import importlib.util
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import click
import trio

from cortex.cli.asking import MAKE_TOKEN, TOKEN_VARIABLE
from cortex.cli.options import Command, Options, completions
from cortex.cli.screen.logs import configure_logs
from cortex.cli.target import database, settings_from
from cortex.config import host_and_port
from cortex.domain.errors import UsageError
from cortex.domain.token import digest_of_token
from cortex.http.mcp.allow import Allow
from cortex.postgres.database import Profile

if TYPE_CHECKING:
    from pathlib import Path

    from cortex.domain.clock import Chance
    from cortex.http.framework.origin import Network
    from cortex.postgres.bridge import Port
    from cortex.view.doctor import Finding

CONNECTIONS_MAX: Final = 4
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _allowed(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> frozenset[Allow]:
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if word not in list(Allow):
            raise UsageError(
                f"--allow {word[:40]!r}: assistants may be allowed {', '.join(Allow)}",
                hint="without --allow they only read",
            )
    return frozenset(map(Allow, words))


@click.command(cls=Command)
@click.option(
    "--allow",
    multiple=True,
    callback=_allowed,
    metavar="A,B",
    shell_complete=lambda *given: completions(Allow, given[-1]),
    help="What assistants may do beside reading: submit, approve, retry, cancel  [nothing].",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    help="Serve any number of assistants there, at /mcp, each with a token  [stdin and stdout].",
)
@click.pass_obj
def mcp(options: Options, *, allow: frozenset[Allow], http: str | None) -> None:
    """Serve tools to an assistant, so that it can operate Cortex (Model Context Protocol).

    An assistant starts this command and speaks to it on stdin and stdout. It only reads unless
    you allow more. It acts as the holder of the token in CORTEX_TOKEN; without one with the
    database login, as commands do, and decides no approvals. With --http each request brings its
    own token.
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError(
            "this needs the package mcp, which is not installed",
            hint="install it: pip install 'cortex-durable[mcp]'",
        )
    options.refuse_columns("mcp serves tools, it has no columns")
    settings = settings_from(options)
    token = None if http is not None else os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and digest_of_token(token) is None:
        raise UsageError(f"{TOKEN_VARIABLE} holds no token of Cortex", hint=MAKE_TOKEN)
    if Allow.APPROVE in allow and http is None and token is None:
        raise UsageError(
            "--allow approve needs a person's token: a decision is made in a person's name",
            hint=f"set {TOKEN_VARIABLE}; {MAKE_TOKEN}",
        )
    place = None if http is None else host_and_port(http)
    configure_logs(level=logging.WARNING if http is None else logging.INFO)
    with database(settings, must_exist=True) as address:
        profile = Profile(
            dsn=address,
            connections_max=CONNECTIONS_MAX,
            tenant=settings.tenant,
            # Without a token nothing is written, not even when it was used.
            is_read_only=not allow and token is None and place is None,
        )
        process = Process(
            profile=profile,
            allow=allow,
            token=token,
            place=place,
            proxies=settings.proxies,
            folder_roots=settings.folder_roots,
            checks=partial(_checks, options),
        )
        trio.run(process.run)


@attrs.frozen(kw_only=True)
class Process:
    """This process, while it serves tools."""

    profile: Profile
    allow: frozenset[Allow]
    token: str | None = attrs.field(repr=False)
    """Of stdin's client; None: it has the database login."""
    place: tuple[str, int] | None
    """Host and port; None: stdin and stdout."""
    proxies: "Sequence[Network]"
    folder_roots: "Sequence[Path]"
    """Where agents of jobs that assistants submit may work."""
    checks: "Callable[[], Sequence[Finding]]"

    async def run(self) -> None:
        """Serve until the client leaves or a signal comes."""
        from cortex.domain.clock import system_chance
        from cortex.postgres.bridge import open_port

        with trio.open_signal_receiver(*SIGNALS) as signals:
            async with trio.open_nursery() as nursery:

                async def end_on_signal() -> None:
                    async for _ in signals:
                        nursery.cancel_scope.cancel(reason="a signal came")

                nursery.start_soon(end_on_signal)
                chance = system_chance()
                async with open_port(self.profile, rng=chance.rng) as port:
                    await self._serve(port, chance)
                nursery.cancel_scope.cancel(reason="the client has left")

    async def _serve(self, port: "Port", chance: "Chance") -> None:
        from cortex.http.mcp.callers import of_login
        from cortex.http.mcp.serving import Serving
        from cortex.runtime.clients.result_waiters import ResultWaiters
        from cortex.store.people import system_user

        waiters = ResultWaiters(port)
        serving = Serving(
            port=port,
            chance=chance,
            result=waiters.result,
            allowed=self.allow,
            tenant=self.profile.tenant,
            checks=self.checks,
            proxies=self.proxies,
            folder_roots=self.folder_roots,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(waiters.run)
            if self.place is None:
                _explain_on_terminal()
                await serving.on_stdio(token=self.token, login=of_login(system_user()))
            else:
                await serving.on_http(*self.place, ready=_ready)
            nursery.cancel_scope.cancel(reason="the client has left")


def _checks(options: Options) -> "Sequence[Finding]":
    """Run the checks of `cortex doctor` but that of the terminal: there is none."""
    from cortex.cli.checks import findings

    return list(findings(options, None))


def _explain_on_terminal() -> None:
    if sys.stdin.isatty():
        click.echo(
            "this speaks the Model Context Protocol on stdin and stdout: let an assistant start "
            "it, or end it with Ctrl-D",
            err=True,
        )


def _ready(url: str) -> None:
    click.echo(f"serving tools at {url}/mcp; Ctrl-C ends it", err=True)
