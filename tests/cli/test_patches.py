"""`cortex patches`: which jobs still need which branch."""

from tests.support.command_line import Cortex
from tests.support.life import Life


def test_patches_are_listed_with_the_jobs_that_need_each_branch(cortex: Cortex, life: Life) -> None:
    assert "no unfinished job has reached a patch" in cortex("patches").err
    life.type()
    pod = life.pod()
    ids = []
    for is_new in (False, True, True):
        ids.append(life.job())
        claim = life.claim(pod)
        life.step(pod, claim, 1, "load")
        life.patch(pod, claim, 2, "2027-01 new prompt", is_new=is_new)
    (row,) = cortex("patches", "--json").document["patches"]
    assert row == {
        "patch": "2027-01 new prompt",
        "type": "digest",
        "old": 1,
        "new": 2,
        "undecided": 0,
        "old_job": str(ids[0]),
        "undecided_job": None,
        "is_capped": False,
    }
    shown = cortex("jobs", "show", str(ids[0])).out
    assert "patched: 2027-01 new prompt" in shown
