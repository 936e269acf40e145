"""Every key there is, in one table: bindings, footer, help and palette are made of it.

A key that acts changes something for others: it asks first, and does nothing for `--read-only`.
On one screen no two of them differ only by case.
"""

from collections.abc import Sequence
from typing import Final

import attrs

EVERYWHERE: Final = "*"
GROUPS: Final = {
    "move": "Move",
    "look": "Look (changes nothing)",
    "act": "Act (asks, then y)",
    "app": "Everywhere",
}
"""In the order of the footer and the help."""
LISTS: Final = (
    "pulse",
    "dead",
    "letters",
    "acts",
    "act",
    "jobs",
    "job",
    "log",
    "help",
    "approvals",
    "pods",
    "breakers",
)
"""Screens whose body is one table; the keys that move in it are theirs."""


@attrs.frozen(kw_only=True)
class Key:
    """What one action is called, and which keys do it."""

    id: str
    keys: tuple[str, ...]
    """In Textual's words; the first one is shown."""
    action: str
    label: str
    """Two words at most: for the footer and the palette."""
    help: str
    group: str
    where: tuple[str, ...] = (EVERYWHERE,)
    """Names of screens."""
    is_acting: bool = False
    in_footer: bool = False
    pair: str | None = None
    """Id of the opposite one, which stands beside it in the footer."""

    def is_on(self, screen: str) -> bool:
        """Whether it does something on a screen."""
        return EVERYWHERE in self.where or screen in self.where


def _move(name: str, keys: Sequence[str], label: str, told: str, **more: object) -> Key:
    return Key(
        id=f"list.{name}",
        keys=tuple(keys),
        action=f"move('{name}')",
        label=label,
        help=told,
        group="move",
        where=LISTS,
        **more,  # type: ignore[arg-type]
    )


def _job(
    name: str,
    keys: tuple[str, ...],
    action: str,
    label: str,
    told: str,
    *,
    group: str = "look",
    **more: object,
) -> Key:
    return Key(
        id=f"job.{name}",
        keys=keys,
        action=action,
        label=label,
        help=told,
        group=group,
        where=("job",),
        **more,  # type: ignore[arg-type]
    )


def _look(
    name: str, keys: Sequence[str], action: str, label: str, told: str, **more: object
) -> Key:
    return Key(
        id=name,
        keys=tuple(keys),
        action=action,
        label=label,
        help=told,
        group="look",
        **more,  # type: ignore[arg-type]
    )


def _screen(number: int, name: str, told: str) -> Key:
    return Key(
        id=f"screen.{name}",
        keys=(str(number),),
        action=f"app.show('{name}')",
        label=name,
        help=told,
        group="move",
    )


KEYS: Final = (
    _move("down", ("j", "down"), "move", "Next row", in_footer=True, pair="list.up"),
    _move("up", ("k", "up"), "up", "Row before"),
    _move("top", ("g", "home"), "top", "First row"),
    _move("end", ("G", "end"), "end", "Last row"),
    _move("half_down", ("ctrl+d", "pagedown"), "half page down", "Half a page down"),
    _move("half_up", ("ctrl+u", "pageup"), "half page up", "Half a page up"),
    Key(
        id="back",
        keys=("escape",),
        action="app.back",
        label="back",
        help="Back to where one came from",
        group="move",
    ),
    Key(
        id="history.back",
        keys=("left_square_bracket",),
        action="app.history('-1')",
        label="screen before",
        help="The screen where one was before",
        group="move",
    ),
    Key(
        id="history.on",
        keys=("right_square_bracket",),
        action="app.history('1')",
        label="screen after",
        help="On again to the screen after that",
        group="move",
    ),
    _screen(1, "pulse", "How the cluster does, at a glance"),
    _screen(2, "jobs", "Jobs: filtered, in order, acted on together"),
    _screen(3, "approvals", "What waits for people"),
    _screen(4, "pods", "Who works: pods, and the queues they take jobs from"),
    _screen(5, "dead", "What failed and waits for somebody, by its error"),
    _screen(6, "breakers", "What is called and fails"),
    Key(
        id="approvals.first",
        keys=("A",),
        action="app.most_urgent",
        label="most urgent",
        help="The approval that has to be decided first",
        group="move",
    ),
    Key(
        id="approvals.next",
        keys=("n",),
        action="next",
        label="next",
        help="Next request that can be decided",
        group="move",
        where=("approvals",),
        in_footer=True,
    ),
    Key(
        id="approvals.tab",
        keys=("tab",),
        action="next_tab",
        label="tab",
        help="Mine, all, decided",
        group="move",
        where=("approvals",),
    ),
    Key(
        id="approvals.raw",
        keys=("i",),
        action="raw",
        label="raw",
        help="The arguments in one piece, exactly as they run",
        group="look",
        where=("approvals",),
        in_footer=True,
    ),
    Key(
        id="approvals.job",
        keys=("o",),
        action="job",
        label="job",
        help="Open the job that asks",
        group="look",
        where=("approvals",),
        in_footer=True,
    ),
    Key(
        id="approvals.mark",
        keys=("space",),
        action="mark",
        label="mark",
        help="Mark it, for a batch",
        group="look",
        where=("approvals",),
    ),
    Key(
        id="approvals.batch",
        keys=("b",),
        action="batch",
        label="batch",
        help="Take the marked ones of one shape together; again: not",
        group="look",
        where=("approvals",),
    ),
    Key(
        id="approvals.approve",
        keys=("a",),
        action="approve",
        label="approve",
        help="Agree: it runs with exactly these arguments, once",
        group="act",
        where=("approvals",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="approvals.deny",
        keys=("d",),
        action="deny",
        label="deny",
        help="Say no, and why",
        group="act",
        where=("approvals",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="approvals.recall",
        keys=("u",),
        action="recall",
        label="recall",
        help="Take the last decision back, within three seconds; HIGH and above are sent at once",
        group="act",
        where=("approvals",),
    ),
    Key(
        id="approvals.edit",
        keys=("E",),
        action="edit",
        label="edit",
        help="Edit the arguments as JSON before agreeing",
        group="act",
        where=("approvals",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="open",
        keys=("enter",),
        action="open",
        label="open",
        help="Open what the cursor is on",
        group="look",
        where=("jobs", "dead", "letters", "acts", "act", "pods"),
        in_footer=True,
    ),
    Key(
        id="filter",
        keys=("slash",),
        action="filter",
        label="filter",
        help="Filter the list: status:retry agent:invoice-* age>10m",
        group="look",
        where=("jobs",),
        in_footer=True,
    ),
    Key(
        id="fresh",
        keys=("full_stop",),
        action="fresh",
        label="new rows",
        help="Show the rows that are new since the list was read",
        group="look",
        where=("jobs", "dead", "letters"),
    ),
    _look(
        "mark",
        ("space",),
        "mark('one')",
        "mark",
        "Mark the row, or unmark it; R and K act on all marks",
        where=("jobs",),
        in_footer=True,
    ),
    _look(
        "mark.range",
        ("ctrl+space", "ctrl+@"),
        "mark('range')",
        "mark range",
        "Mark all rows from the last mark to this one",
        where=("jobs",),
    ),
    _look(
        "mark.all",
        ("asterisk",),
        "mark_all",
        "mark all",
        "Mark all that fit the filter, also those out of sight",
        where=("jobs",),
    ),
    _look("mark.clear", ("ctrl+backslash",), "unmark", "clear marks", "No marks", where=("jobs",)),
    _look(
        "jobs.sort", ("s",), "sort", "sort", "The next order: newest, oldest first", where=("jobs",)
    ),
    _look(
        "jobs.columns",
        ("w",),
        "columns",
        "columns",
        "Choose what is shown of jobs",
        where=("jobs",),
    ),
    _look("jobs.owner", ("o",), "owner", "agent", "All jobs of the job's agent", where=("jobs",)),
    _look(
        "jobs.problem",
        ("n",),
        "problem('next')",
        "problem",
        "Next job with which something is wrong",
        where=("jobs",),
    ),
    _look(
        "jobs.problem_before",
        ("N",),
        "problem('before')",
        "problem before",
        "The one before with which something is wrong",
        where=("jobs",),
    ),
    _look(
        "copy",
        ("c",),
        "app.copy",
        "copy",
        "Copy, then i id, j JSON, c command; s saves the screen",
    ),
    _look(
        "look_at",
        ("e",),
        "app.look_at",
        "editor",
        "Open it as JSON in $EDITOR, to read",
        where=("jobs", "job", "letters", "approvals", "pods", "breakers"),
    ),
    Key(
        id="pods.table",
        keys=("tab",),
        action="other_table",
        label="other table",
        help="From the pods to the queues, and back",
        group="move",
        where=("pods",),
    ),
    Key(
        id="pods.drain",
        keys=("D",),
        action="drain",
        label="drain",
        help="Let the pod take no more jobs; again: let it take them",
        group="act",
        where=("pods",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="queues.pause",
        keys=("P",),
        action="pause",
        label="pause",
        help="Let no pod take from the queue; again: let it go on",
        group="act",
        where=("pods",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="breakers.force",
        keys=("O",),
        action="force",
        label="open/close",
        help="Hold the breaker open, or close one that is not closed",
        group="act",
        where=("breakers",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="jobs.retry",
        keys=("R",),
        action="retry",
        label="retry",
        help="Let the job try again now, or all that are marked",
        group="act",
        where=("jobs", "job"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="jobs.cancel",
        keys=("K",),
        action="cancel",
        label="cancel",
        help="Cancel the job, or all that are marked",
        group="act",
        where=("jobs", "job"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="jobs.pause",
        keys=("P",),
        action="pause",
        label="pause queue",
        help="Let nothing more be claimed from the job's queue",
        group="act",
        where=("jobs",),
        is_acting=True,
        in_footer=True,
    ),
    _job(
        "pane",
        ("tab",),
        "pane",
        "pane",
        "The next pane: steps, one step, the stream",
        group="move",
        in_footer=True,
    ),
    _job(
        "problem",
        ("n",),
        "problem('next')",
        "problem",
        "Next row in which something went wrong",
        group="move",
    ),
    _job(
        "problem_before",
        ("N",),
        "problem('before')",
        "problem before",
        "The one before in which something went wrong",
        group="move",
    ),
    _job(
        "zoom_in",
        ("plus",),
        "zoom('1')",
        "zoom",
        "Half as much time in sight",
        in_footer=True,
        pair="job.zoom_out",
    ),
    _job("zoom_out", ("minus",), "zoom('-1')", "zoom out", "Twice as much time in sight"),
    _job("fit", ("0",), "zoom('fit')", "fit", "All of the time in sight"),
    _job("follow", ("f",), "follow", "follow", "Follow what happens now; again: stay"),
    _job("fold", ("h", "left"), "fold('shut')", "fold", "Fold the calls of an answer into it"),
    _job("unfold", ("l", "right"), "fold('open')", "unfold", "Show the calls of an answer"),
    _job("maximise", ("z",), "maximise", "maximise", "Only the pane in front; again: all of them"),
    _job(
        "view",
        ("greater_than_sign",),
        "view('next')",
        "view",
        "The step otherwise: log, prompt, response, raw",
        in_footer=True,
    ),
    _job("view_before", ("less_than_sign",), "view('before')", "view before", "The same backwards"),
    _job("raw", ("i",), "view('raw')", "raw", "The step as JSON; again: in words"),
    _job("attempts", ("x",), "attempts", "compare", "Compare the attempts of the step"),
    _job("origin", ("o",), "origin", "origin", "Open the job that this one goes on from"),
    _job("gate", ("a", "d"), "gate", "approval", "Open the request that the job waits for"),
    _job(
        "budget",
        ("B",),
        "raise_budget",
        "budget",
        "Raise the budget that stops the job first",
        group="act",
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="dead.retry",
        keys=("R",),
        action="retry",
        label="retry",
        help="Go on in new jobs, after the last steps of the failed",
        group="act",
        where=("dead", "letters"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="dead.discard",
        keys=("X",),
        action="discard",
        label="discard",
        help="Give the failed jobs up: nobody goes on from them",
        group="act",
        where=("dead", "letters"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="acts.show",
        keys=("tab",),
        action="acts",
        label="acts",
        help="What was begun for many letters, and how far it is",
        group="move",
        where=("dead",),
        in_footer=True,
    ),
    Key(
        id="acts.errors",
        keys=("tab",),
        action="errors",
        label="errors",
        help="Back to the errors",
        group="move",
        where=("acts",),
        in_footer=True,
    ),
    Key(
        id="acts.rest",
        keys=("P",),
        action="rest",
        label="pause act",
        help="Let the act on many letters rest; again: let it go on",
        group="act",
        where=("dead", "acts"),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="acts.end",
        keys=("K",),
        action="end",
        label="end act",
        help="End the act: the letters that are left stay as they are",
        group="act",
        where=("acts",),
        is_acting=True,
        in_footer=True,
    ),
    Key(
        id="help",
        keys=("question_mark",),
        action="app.help",
        label="all keys",
        help="All keys of this screen",
        group="app",
        in_footer=True,
    ),
    Key(
        id="command",
        keys=("colon", "ctrl+p"),
        action="app.command_palette",
        label="command",
        help="Everything by its name",
        group="app",
        in_footer=True,
    ),
    Key(
        id="log",
        keys=("at",),
        action="app.log_of_commands",
        label="command log",
        help="What was done here, as commands",
        group="app",
    ),
    Key(
        id="mute",
        keys=("m",),
        action="app.mute",
        label="mute",
        help="No bell for an hour; again: ring",
        group="app",
    ),
    Key(
        id="theme",
        keys=("t",),
        action="app.next_theme",
        label="theme",
        help="Dark, light or the terminal's own colours",
        group="app",
    ),
    Key(
        id="suspend",
        keys=("ctrl+z",),
        action="app.suspend_process",
        label="suspend",
        help="Back to the shell; fg comes back",
        group="app",
    ),
    Key(
        id="quit",
        keys=("q",),
        action="app.quit",
        label="quit",
        help="Leave",
        group="app",
    ),
)
