"""A mail server on loopback with STARTTLS, scripted: what it refuses, and where it hangs.

Its certificate is for `localhost` and signs itself: who is to trust it sets SSL_CERT_FILE.
"""

import base64
import socketserver
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

KEY_AND_CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDwRstwDbUoPRaMXA
lhdqVvbLC9qyRBLjiPIHml1euRqhRANCAARJNCPto8j179urylKNrG6hbHJa85pm
vwk419mnyMoD+5ydwvZDHQE3SkXO1BuDAektixhYNi+UTOkOcyGQSf15
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBYTCCAQegAwIBAgIBATAKBggqhkjOPQQDAjAUMRIwEAYDVQQDDAlsb2NhbGhv
c3QwIBcNMjAwMTAxMDAwMDAwWhgPMjEyMDAxMDEwMDAwMDBaMBQxEjAQBgNVBAMM
CWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABEk0I+2jyPXv26vK
Uo2sbqFsclrzmma/CTjX2afIygP7nJ3C9kMdATdKRc7UG4MB6S2LGFg2L5RM6Q5z
IZBJ/XmjSDBGMA8GA1UdEwEB/wQFMAMBAf8wFAYDVR0RBA0wC4IJbG9jYWxob3N0
MB0GA1UdDgQWBBS9YJz6stu6rt+5Tpywoul98SzKEjAKBggqhkjOPQQDAgNIADBF
AiEAuaLLq21cNXSrNATt45nO/AaxldE/wpfXoRIBcQcXlggCIDwg2fy6M0VrSFRh
E1iSdn6nEB1mzL5JmqAZifTKRQj0
-----END CERTIFICATE-----
"""
"""Of this server alone, until 2120."""


@attrs.define
class Mail:
    """One message that it took."""

    sender: str
    to: list[str]
    login: tuple[str, str] | None
    was_encrypted: bool
    text: str


@attrs.define(eq=False)
class SmtpServer:
    """SMTP server with scripted replies; keeps the mails that it accepted."""

    port: int
    certificate: Path
    replies: dict[str, str] = attrs.field(factory=dict)
    """Instead of the usual ones, by the first word of a command; TEXT: at the end of a message."""
    hangs_at: str | None = None
    closes_at: str | None = None
    has_starttls: bool = True
    mails: list[Mail] = attrs.field(factory=list)
    asked: list[str] = attrs.field(factory=list)
    """First words of commands."""
    released: threading.Event = attrs.field(factory=threading.Event)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        self.sender, self.to, self.is_encrypted = "", list[str](), False
        self.login: tuple[str, str] | None = None
        with suppress(OSError):
            self._serve(self.server.smtp)  # type: ignore[attr-defined]

    def _serve(self, smtp: SmtpServer) -> None:
        self._answer(smtp, "CONNECT", "220 ready")
        while line := self.rfile.readline():
            word, _, rest = line.decode().strip().partition(" ")
            word = word.upper()
            smtp.asked.append(word)
            self._obey(smtp, word, rest)
            if word == "QUIT":
                return

    def _obey(self, smtp: SmtpServer, word: str, rest: str) -> None:
        match word:
            case "EHLO":
                offers = "250-STARTTLS\r\n" if smtp.has_starttls else ""
                self._answer(smtp, word, f"250-localhost\r\n{offers}250 AUTH PLAIN")
            case "STARTTLS":
                self._answer(smtp, word, "220 go ahead")
                self._encrypt(smtp)
            case "AUTH":
                _, user, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                self.login = (user, password)
                self._answer(smtp, word, "235 welcome")
            case "MAIL":
                self.sender = rest.partition("<")[2].partition(">")[0]
                self._answer(smtp, word, "250 ok")
            case "RCPT":
                recipient = rest.partition("<")[2].partition(">")[0]
                if self._answer(smtp, smtp_word(smtp, word, recipient), "250 ok"):
                    self.to.append(recipient)
            case "DATA":
                if self._answer(smtp, word, "354 go ahead"):
                    self._take(smtp)
            case "QUIT":
                self._answer(smtp, word, "221 bye")
            case _:
                self._answer(smtp, word, "250 ok")

    def _answer(self, smtp: SmtpServer, word: str, usual: str) -> bool:
        """Answer; return whether that was the usual."""
        if smtp.hangs_at == word:
            smtp.released.wait()
        if word in (smtp.hangs_at, smtp.closes_at):
            raise ConnectionAbortedError
        reply = smtp.replies.get(word, usual)
        self.wfile.write(f"{reply}\r\n".encode())
        return reply == usual

    def finish(self) -> None:
        with suppress(OSError):
            super().finish()
        self.connection.close()

    def _encrypt(self, smtp: SmtpServer) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(smtp.certificate)
        self.connection = context.wrap_socket(self.connection, server_side=True)
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
        self.is_encrypted = True

    def _take(self, smtp: SmtpServer) -> None:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            if not line:
                return
            lines.append(line.decode())
        if self._answer(smtp, "TEXT", "250 taken"):
            text = "".join(lines)
            smtp.mails.append(Mail(self.sender, self.to, self.login, self.is_encrypted, text))


def smtp_word(smtp: SmtpServer, word: str, recipient: str) -> str:
    """Return the key of a reply to one recipient, if there is one of its own."""
    own = f"{word} {recipient}"
    return own if own in smtp.replies else word


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def handle_error(self, *_: object) -> None:
        """A client that leaves is no error here."""


@contextmanager
def serving_smtp(folder: Path) -> Iterator[SmtpServer]:
    """Run a server in the body; its certificate is in `folder`."""
    certificate = folder / "smtp.pem"
    certificate.write_text(KEY_AND_CERTIFICATE)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        smtp = SmtpServer(server.server_address[1], certificate)
        server.smtp = smtp  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield smtp
        finally:
            smtp.released.set()
            server.shutdown()
            thread.join()
