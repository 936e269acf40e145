"""The system user of the embedded Postgres, and which directories that user can reach.

Postgres refuses to run as root, so root's server gets its own system user. No permissions are
loosened for it: the error names a directory that it cannot pass.
"""

import os
import pwd
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

from attrs import frozen

from cortex.domain.errors import UsageError

SERVICE_USER = "cortex-postgres"
USERADD_BOUND_S = 20  # it only waits for the lock on /etc/passwd
USE_DSN = "pass --dsn with the address of a Postgres server to do without the embedded one"


@frozen
class Account:
    """A system user by number."""

    uid: int
    gid: int

    @property
    def is_me(self) -> bool:
        """Whether a child runs as this user anyway."""
        return self.uid == os.geteuid()

    def popen_options(self) -> dict[str, Any]:
        """Arguments of `subprocess.Popen` that run the child as this user."""
        if self.is_me:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def may_enter(self, path: Path) -> bool:
        """Whether the mode bits let this user pass a directory or execute a file."""
        info = path.stat()
        if self.uid == info.st_uid:
            return bool(info.st_mode & stat.S_IXUSR)
        if self.gid == info.st_gid:
            return bool(info.st_mode & stat.S_IXGRP)
        return bool(info.st_mode & stat.S_IXOTH)

    def blocked_at(self, path: Path) -> Path | None:
        """The first step from / down to `path` that this user cannot pass, None if there is none.

        For our own user the mode bits are not checked: the kernel reports a failure itself.
        """
        if self.is_me:
            return None
        steps = [*reversed(path.parents), path]
        return next((step for step in steps if not self.may_enter(step)), None)


def account_for(pgdata: Path) -> Account:
    """Who runs the server: the owner of existing data, else this user or, for root, its own user.

    Raises UsageError if the data belongs to a user that this process cannot act for.
    """
    me = Account(uid=os.geteuid(), gid=os.getegid())
    if not pgdata.exists():
        return _service_account() if me.uid == 0 else me
    info = pgdata.stat()
    if me.uid not in {0, info.st_uid}:
        raise UsageError(
            f"the data in {pgdata} belongs to {_name(info.st_uid)}, not to {_name(me.uid)}",
            hint=f"run as {_name(info.st_uid)}, or choose another --data",
        )
    if info.st_uid == 0:
        raise UsageError(
            f"the data in {pgdata} belongs to root, and Postgres refuses to run as root",
            hint=f"chown -R {SERVICE_USER} {pgdata}, or choose another --data",
        )
    return Account(uid=info.st_uid, gid=info.st_gid)


def _service_account() -> Account:
    """The user for root's server, created when absent."""
    try:
        return _lookup(SERVICE_USER)
    except KeyError:
        problem = _create_user(SERVICE_USER)
    try:
        return _lookup(SERVICE_USER)
    except KeyError:
        raise UsageError(
            f"Postgres cannot run as root and its user {SERVICE_USER} was not created: {problem}",
            hint=f"create it, run Cortex as another user, or {USE_DSN}",
        ) from None


def _create_user(name: str) -> str:
    """Try to create a system user; return the output of useradd, for an error message."""
    where = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    command = [shutil.which("useradd", path=where) or "useradd"]
    command += ["--system", "--user-group", "--no-create-home"]
    command += ["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", name]
    try:
        done = subprocess.run(  # noqa: S603  (a list of constants)
            command,
            capture_output=True,
            text=True,
            timeout=USERADD_BOUND_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"useradd ended with code {done.returncode}"


def _lookup(name: str) -> Account:
    entry = pwd.getpwnam(name)
    return Account(uid=entry.pw_uid, gid=entry.pw_gid)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
