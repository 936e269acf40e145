"""The tree of a job: folded, counted, in the order in which people must see it."""

import pytest

from cortex.domain.errors import NotFoundError
from cortex.store import children, jobs
from cortex.view.tree import flat, lines_of
from tests.children.conftest import Parents
from tests.support.records.rows import new_id


def test_tree_folds_most_of_many_children_and_counts_them(parents: Parents) -> None:
    claim = parents.running()
    places = parents.spawn(claim, 1000, let_go=30)
    parents.store(jobs.cancel, places[6], by="me", reason="enough")
    tree = parents.store(children.tree, claim.lease.job_id, shown_max=3)
    lines = lines_of(tree)
    assert [each.branch for each in lines] == ["", "├─ ", "├─ ", "├─ ", "└─ "]
    assert lines[0].name.startswith("work …")
    assert [each.name.split(" …")[0] for each in lines[1:4]] == [
        "leaf pages",
        "leaf pages #2",
        "leaf pages #3",
    ]
    # Another one has taken the place of the cancelled one.
    assert lines[-1].name == "… 997 more: 27 pending, 1 cancelled, 969 held"
    assert sum(each["count"] for each in flat(tree)["counts"]) == 1000


def test_tree_of_an_unknown_job_is_refused(parents: Parents) -> None:
    with pytest.raises(NotFoundError, match="there is no job"):
        parents.store(children.tree, new_id())
