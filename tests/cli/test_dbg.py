from tests.support.rows import submit
from tests.support.postgres import sql
from tests.support.pods import Pods
import time
def test_x(database, tmp_path):
    pods=Pods(database,tmp_path,{})
    pods.start("--app","tests.support.hostile_app")
    submit(database,"doubts",tenant="x")
    time.sleep(6)
    for r in sql(database,"SELECT status,waiting_on,error_message FROM cortex.job"): print(dict(r))
    for r in sql(database,"SELECT * FROM cortex.effect"): print(dict(r))
    print(pods.all[0].log[-3000:])
    pods.close()
    assert 0
