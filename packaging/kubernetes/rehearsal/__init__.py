"""Run the pods of the manifests as processes of this machine: `packaging/kubernetes/rehearse`."""
