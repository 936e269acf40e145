"""`cortex retention`: set, shown, unset, and refused where it makes no sense."""

import pytest

from tests.support.command_line import Cortex
from tests.support.life import Life
from tests.support.people import me

WHY = ("--reason", "a test", "--yes")


def test_retention_is_set_shown_and_unset(cortex: Cortex, life: Life) -> None:
    assert cortex("retention", "show").out.strip() == "everything is kept: no retention is set"
    made = cortex(
        *("retention", "set", "--completed", "30d", "--facts", "400d", "--archive", "/srv/old"),
        *WHY,
        *("--as", "ana", "--json"),
    )
    assert "the archive /srv/old cannot be written: No such file or directory; each" in made.err
    document = made.document
    assert (document["completed_s"], document["failed_s"], document["facts_s"]) == (
        *(30 * 86400, None),
        400 * 86400,
    )
    assert (document["archive"], document["changed_by"], document["reason"]) == (
        *("/srv/old", me("ana")),
        "a test",
    )
    shown = cortex("retention", "show").out.splitlines()
    assert shown == [
        "completed jobs older than 30d",
        "facts older than 400d",
        "failed and cancelled jobs are kept",
        "copies go to /srv/old",
        f"set by {me('ana')}: a test",
    ]
    assert cortex("retention", "unset", "--reason", "enough").code == 0
    assert cortex("retention", "show", "--json").document["is_set"] is False
    facts = cortex("facts", "--source", "retention", "--json").document["facts"]
    assert {each["subtype"] for each in facts} == {"retention_set", "retention_unset"}
    page = cortex("facts", "--source", "retention").out
    assert f"by {me('ana')} · none → archive /srv/old, completed 30d, facts 400d: a test" in page


@pytest.mark.parametrize(
    "given, message",
    [
        ((), "no period is given"),
        (("--completed", "12h"), "--completed 12h is not between 1d and 36500d"),
        (("--failed", "soon"), "--failed 'soon' is not a time such as"),
        (("--facts", "0"), "--facts '0' is not a time such as"),
        (("--facts", "30d", "--archive", "old"), "is not an absolute path"),
    ],
)
def test_invalid_retention_is_refused(cortex: Cortex, given: tuple[str, ...], message: str) -> None:
    refused = cortex("retention", "set", *given, *WHY)
    assert refused.code == 2
    assert message in refused.err


def test_setting_retention_asks_for_confirmation(cortex: Cortex) -> None:
    refused = cortex("retention", "set", "--completed", "30d", "--reason", "a test")
    assert refused.code != 0
    assert "--yes" in refused.err
    assert cortex("retention", "show", "--json").document["is_set"] is False
