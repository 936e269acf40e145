"""A parent in a process of its own: it has no connection, its pod submits for it."""

from tests.children.conftest import Family


def test_isolated_parent_gets_the_results_of_its_children(family: Family) -> None:
    family.start()
    job_id = family.submit("isolated_add", numbers=[1, 2, 3])
    assert family.result(job_id) == 2 * (100 + 6 + 1000)
    assert len(family.children(job_id)) == 6
