"""The demo's mail: a call with an outside result, which people approve before it is made.

Nothing leaves this machine: a mail is written to the job's workspace, as `outbox/INVOCATION.eml`.
"""

import os
import re
from email import policy
from email.message import EmailMessage
from typing import Final

import attrs

from cortex.agent.tools.tool import ToolContext, tool
from cortex.agent.workspace.jail import open_file, open_folder, write_whole
from cortex.domain.errors import RejectedError

SEND_MAIL: Final = "send_mail"
OUTBOX: Final = "outbox"
SENDER: Final = "inspector@example.org"
ATTACHMENT_BYTES_MAX: Final = 1_000_000
_ADDRESS: Final = re.compile(r"[A-Za-z0-9._+-]+@[A-Za-z0-9.-]+")


@attrs.frozen
class Sent:
    """The fate of a mail."""

    to: list[str]
    file: str
    """Its path, relative to the workspace."""


@tool(
    effect=True,
    idempotent=True,
    local=True,
    approve=True,
    risk="MED",
    reversible=False,
    says="a mail goes to people; in this demo it becomes a file",
)
def send_mail(context: ToolContext, to: list[str], subject: str, text: str, with_file: str) -> Sent:
    """Send a mail.

    Args:
        to: The addresses of all who get it.
        subject: One line.
        text: Plain text.
        with_file: A text file of the workspace that goes with it, such as "report.md".
    """
    name = f"{context.invocation.id}.eml"
    mail = _mail(to, subject, text)
    mail["Message-ID"] = f"<{context.invocation.id}@example.org>"
    mail.add_attachment(_attached(context, with_file), subtype="markdown", filename=with_file)
    # The same invocation again, after a crash, is the same file: a mail is sent once.
    with open_folder(context.workspace, (OUTBOX,), create=True) as folder:
        write_whole(folder, name, mail.as_bytes())
    return Sent(to=to, file=f"{OUTBOX}/{name}")


def _mail(to: list[str], subject: str, text: str) -> EmailMessage:
    wrong = [each for each in to if not _ADDRESS.fullmatch(each)]
    if wrong or not to:
        raise RejectedError(f"{wrong[0]!r} is no address" if wrong else "the mail goes to nobody")
    if not subject.isprintable():
        raise RejectedError("the subject is not one line of text")
    mail = EmailMessage(policy=policy.SMTPUTF8)
    mail["From"], mail["To"], mail["Subject"] = SENDER, ", ".join(to), subject
    mail.set_content(text)
    return mail


def _attached(context: ToolContext, path: str) -> str:
    with open_file(context.workspace, path) as file:
        content = os.pread(file, ATTACHMENT_BYTES_MAX + 1, 0)
    if len(content) > ATTACHMENT_BYTES_MAX:
        raise RejectedError(f"{path!r} has more than {ATTACHMENT_BYTES_MAX:,} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RejectedError(f"{path!r} is not UTF-8 text") from error
