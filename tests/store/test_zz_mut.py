import os,re
from pathlib import Path
import pytest
from tests.store.test_approval_races import *
from tests.support.postgres import sql
@pytest.fixture
def askers(store, database):
    text=Path('sql/migrations/0010_approvals.sql').read_text()
    m=os.environ['MUT']
    name='decide' if m.startswith('d') else 'expire_approvals'
    a=text.index(f'CREATE FUNCTION cortex.{name}('); b=text.index('END $$;',a)+7
    f=text[a:b].replace('CREATE FUNCTION','CREATE OR REPLACE FUNCTION')
    g=f
    if m=='d1': g=f.replace("WHERE t.job_id = owner FOR UPDATE;","WHERE t.job_id = owner;")
    if m=='d2': g=f.replace("AND j.worker_job_id IS NOT DISTINCT FROM its_task FOR UPDATE;",";").replace("WHERE t.job_id = owner FOR UPDATE;","WHERE t.job_id = owner;")
    if m=='d3': g=f.replace("WHERE a.id = of_approval FOR UPDATE;","WHERE a.id = of_approval;").replace("IS NOT DISTINCT FROM its_task FOR UPDATE","IS NOT DISTINCT FROM its_task")
    if m=='e1': g=f.replace("WHERE t.job_id = due.job_id FOR UPDATE SKIP LOCKED","WHERE t.job_id = due.job_id")
    if m=='e2': g=f.replace("FOR UPDATE SKIP LOCKED","FOR UPDATE")
    assert g!=f
    sql(database,g)
    return Askers(store, database)
