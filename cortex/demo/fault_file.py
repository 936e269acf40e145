"""Fault files: which calls of the scripted server go wrong, when, and how; YAML or JSON.

    # faults.yaml
    rules:
      - name: outage                    # the log shows the matching rule
        model: claude-*                 # when: all that a rule names must hold
        after_s: 5
        for_s: 20
        status: 429                     # what: one outcome
        retry_after: 20
      - {calls: 1-3, fault: cut, fault_after: 4}
      - {times: 2, fault: error_event, error_type: overloaded_error}
      - {share: 0.1, stop_reason: max_tokens}

The first rule that matches a call answers it; other calls are answered by the server's
script. When a rule matches (missing conditions always hold):

* `model`: the model's name, with `*` and `?`.
* `prompt`: the beginning of the conversation's first message.
* `calls`: numbers of the server's calls, from 1: 3, "1-3", "7-".
* `after_s`, `for_s`: seconds after the server's start, and duration; without
  `after_s` from the first call that meets all other conditions.
* `share`: this share of the calls, such as 0.1, spread pseudo-randomly, the same in each run.
* `times`: the most matches.

The outcome:

* `status`: an HTTP error. `error_type` (else the API's own for that status), `error_code`,
  `message`, `retry_after` (sent verbatim), `retry_after_date_s` (sent as an HTTP date), or `body`
  in place of the API's usual one.
* `fault`: breaks the script's answer after `fault_after` of its chunks: stall (pings every
  `ping_s`), silence, cut, early_end, malformed, not_utf8, error_event (of `error_type`); or all of
  it: html, empty, hang, drop; or nothing: strange_events. Stall, silence and hang end with a cut
  after `fault_s`, or never.
* `text`, `tools`, `stop_reason`, `chunks`, `delay_s`: another answer than the script's, or its
  answer at another pace. `text: ""` is an answer without content; a tool takes `raw_input` to break
  its JSON. `first_delay_s` makes an answer or an error come late.
"""

from pathlib import Path

from attrs import frozen

from cortex.agent.yaml_source import Document, parse_documents
from cortex.demo.faults import Rule
from cortex.domain.errors import UsageError
from cortex.durable.structuring import MisfitError, Problem, UnfitError, structure


@frozen(kw_only=True)
class FaultFile:
    """A whole file."""

    rules: tuple[Rule, ...]

    def __attrs_post_init__(self) -> None:
        if not self.rules:
            raise UnfitError("holds no rule", path=("rules",))


def read_rules(path: Path) -> tuple[Rule, ...]:
    """Return the rules of a file; raises `UsageError` in one line."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"{path} cannot be read: {reason}") from error
    return parse_rules(text, str(path))


def parse_rules(text: str, source: str) -> tuple[Rule, ...]:
    """Return the rules in a text; `source` is its name in errors.

    Raises `UsageError` with file, line, rule, field and value of the first problem.
    """
    documents = parse_documents(text, source)
    if len(documents) != 1:
        raise UsageError(f"{source}: {len(documents)} documents, must be one with rules")
    try:
        return structure(documents[0].value, FaultFile).rules
    except MisfitError as misfit:
        raise UsageError(_line(documents[0], misfit.problems[0])) from misfit


def _line(document: Document, problem: Problem) -> str:
    """Return the problem in one line, with the number and the name of its rule."""
    where = f"{document.source}:{document.line(problem.path)}"
    match problem.path:
        case ("rules", int(index), *rest):
            written = document.value["rules"][index]  # type: ignore[index]
            name = written.get("name") if isinstance(written, dict) else None
            who = f"rule {index + 1} {name!r}" if name else f"rule {index + 1}"
            problem_text = f"{Problem(tuple(rest), '').field} {problem.reason}"
            return f"{where}: {who}: {problem_text.strip()}"
        case _:
            return f"{where}: {problem.field or 'the file'} {problem.reason}"
