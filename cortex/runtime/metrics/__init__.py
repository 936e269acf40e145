"""The metrics of a pod: counts, measurements, and the page for Prometheus."""
