"""What the receiver prints."""

import collections
import json
import time
from dataclasses import dataclass

UNINTERESTING = {"host", "user-agent", "accept", "content-length", "connection", "webhook-id", "webhook-timestamp", "webhook-signature"}
WIDTH = 300  # bytes of a body's beginning


@dataclass
class Shown:
    """The printed parts of a request."""

    id: str
    type: str | None
    headers: dict[str, str]
    lines: list[str]


class Screen:
    def __init__(self):
        self.counts = collections.Counter()

    def say(self, text: str) -> None:
        print(text, flush=True)

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes) -> Shown:
        event_id, event_type = headers.get("webhook-id", "(no id)"), type_of(headers, body)
        lines = [f"{name}: {value}" for name, value in headers.items() if name not in UNINTERESTING]
        if (age := age_of(headers)) is not None:
            lines.insert(0, f"signed {age:.0f} s ago")
        rest = f" … {len(body)} bytes" if len(body) > WIDTH else ""
        return Shown(event_id, event_type, headers, [f"{method} {path}  {', '.join(lines)}", printable(body[:WIDTH]) + rest])

    def answered(self, shown: Shown, status: int, what: str, *more: str) -> None:
        self.counts[what.partition(":")[0]] += 1
        head = f"{time.strftime('%H:%M:%S')}  {shown.type or '(no type)'}  {shown.id}  -> {status} {what}"
        self.say("\n".join([head, *("    " + line for line in [*shown.lines, *more])]))

    def refused(self, shown: Shown, status: int, error: Exception) -> None:
        self.answered(shown, status, f"bad signature, refused: {error}", *("check: " + line for line in to_check(error, shown.headers)))

    def summary(self) -> str:
        return ", ".join(f"{count} {what}" for what, count in self.counts.items()) or "nothing came"


def printable(body: bytes) -> str:
    """Without characters that a terminal would interpret."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in body.decode(errors="replace"))


def type_of(headers: dict[str, str], body: bytes) -> str | None:
    """For Standard Webhooks and CloudEvents, structured and binary."""
    try:
        event = json.loads(body)
    except ValueError:
        event = None
    found = event.get("type") if isinstance(event, dict) else None
    return found if isinstance(found, str) else headers.get("ce-type")


def age_of(headers: dict[str, str]) -> float | None:
    try:
        return time.time() - float(headers["webhook-timestamp"])
    except (KeyError, ValueError):
        return None


def to_check(error: Exception, headers: dict[str, str]) -> list[str]:
    """What a user may check, according to the library."""
    missing = [name for name in ("webhook-id", "webhook-timestamp", "webhook-signature") if not headers.get(name)]
    if missing:
        return [f"the request has no {' and no '.join(missing)}: the sink has no secret in its user mapping for PUBLIC, or a proxy leaves headers out"]
    if "timestamp" in str(error):
        age = age_of(headers) or 0
        return [f"the clocks: this machine's is {abs(age):.0f} s {'ahead of' if age > 0 else 'behind'} the timestamp, and 300 s either way are "
                "tolerated; or an old request was sent again"]
    if isinstance(error, UnicodeDecodeError):
        return ["the library verifies text only, and this body is not UTF-8: verify its bytes by HMAC-SHA256"]
    proxy = next((f"{name}: {headers[name]}" for name in ("via", "forwarded", "x-forwarded-for", "x-real-ip") if name in headers), None)
    return ["the secret: is it the one of the sink? A superuser sees it: SELECT srvname, umoptions FROM pg_user_mappings",
            "the body: every byte of it is signed, and a proxy or a gateway that parses and writes it anew changes them" +
            (f"; this request came through one ({proxy})" if proxy else "")]
