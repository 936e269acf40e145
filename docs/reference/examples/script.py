import os

from offer import offer

from cortex import SyncClient

client = SyncClient(os.environ["CORTEX_DSN"])
handle = client.submit(offer, text="Half price")
print(handle.result(timeout=60))
client.close()
