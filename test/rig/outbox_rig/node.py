"""The official Node libraries, as readers of webhooks."""

import base64
import json
import subprocess
from collections.abc import Iterable

from .paths import BUILD, ROOT
from .receiver import Delivery
from .wait import patient


def read_by_node(library: str, deliveries: Iterable[Delivery], secret: str = "") -> list[str]:
    """The result of the npm package `standardwebhooks` or `svix` for each request ("ok" or "bad: ..."), or the JSON
    that `cloudevents` reads."""
    lines = [json.dumps({"library": library, "secret": secret, "body": base64.b64encode(delivery.body).decode(), "headers": delivery.headers})
             for delivery in deliveries]
    done = subprocess.run(["node", ROOT / "test/rig/node/webhooks.mjs", BUILD / "node"], input="\n".join(lines) + "\n",
                          capture_output=True, text=True, check=True, timeout=patient(60))
    return done.stdout.removesuffix("\n").split("\n")
