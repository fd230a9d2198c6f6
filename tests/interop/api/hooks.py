"""What Schemathesis has to know besides the document: which services there are, and what never ends."""

import random

import schemathesis

SERVICES = ["web-0", "web-1"]


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the requests are about services that there are."""
    if path_parameters and random.random() < 0.5:
        path_parameters["name"] = random.choice(SERVICES)
    return path_parameters


@schemathesis.hook
def filter_query(context, query):
    """A stream is read until the time is up: those of the phase `coverage`, to which this does not apply, do."""
    return str((query or {}).get("follow")).lower() != "true"
