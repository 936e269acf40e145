"""Exports the spans of a pod to a collector, by OTLP over HTTP."""
