"""The HTTP API of a pod: declared routes, who may use them, and the server that answers."""
