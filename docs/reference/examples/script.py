import os
import sys

from offer import offer

from cortex import CapReachedError, NotFoundError, SyncClient, UnavailableError

client = SyncClient(os.environ["CORTEX_DSN"])
try:
    handle = client.submit(offer, text="Half price")
except CapReachedError as error:
    sys.exit(f"too many jobs wait already: {error}")
try:
    print(handle.result(timeout=60))
except NotFoundError:
    sys.exit(f"job {handle.id} was deleted")
except UnavailableError as error:
    sys.exit(f"try again later: {error}")
client.close()
