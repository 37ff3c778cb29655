"""The console as a program, and a visitor without a browser: forms are posted as a browser does it, without JavaScript."""

import os
import re
import subprocess
from html.parser import HTMLParser

import httpx2
from outbox_rig import wait_until
from outbox_rig.paths import BUILD, LOGS, ROOT
from outbox_rig.process import Program, free_port

PROGRAM = BUILD / "console" / "outbox-console"


def build() -> None:
    subprocess.run(["make", "-s", "-C", ROOT / "console", f"PG_CONFIG={os.environ.get('PG_CONFIG', 'pg_config')}", f"CONSOLE_BUILD={BUILD / 'console'}", "CPPFLAGS=-Werror"], check=True)


class Console(Program):
    """`arguments` of the command line. Without --listen it prints a link."""

    def __init__(self, name: str, conninfo: str, *arguments: str, service: bool = False, tls: bool = False):
        self.name, self.log = name, LOGS / f"{name}.log"
        self.log.unlink(missing_ok=True)
        self.port = free_port()
        where = ["--listen", f"127.0.0.1:{self.port}"] if service else ["--port", str(self.port)]
        self.argv = [str(PROGRAM), *where, *arguments, conninfo]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.run(self.argv)
        self.wait_listening(20)
        wait_until(lambda: self.url in self.printed(), 20, "the console's link")

    def printed(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def link(self) -> str:
        return re.findall(r"http\S+", self.printed())[-1]


class Form:
    def __init__(self, attributes: dict[str, str]):
        self.action, self.method, self.fields, self.label = attributes["action"], attributes.get("method", "get"), {}, ""


class Document(HTMLParser):
    """Its forms, links and text. A page with an element that the console does not make is a fault: a text became markup."""

    KNOWN = set("""html head meta title link script body header nav strong a div span form input button main h1 h2 p small b br table thead tbody tr th td
                   ul ol li dl dt dd pre details summary label svg polyline abbr time""".split())
    VOID = {"meta", "link", "input", "br", "polyline"}

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.forms: list[Form] = []
        self.links: dict[str, str] = {}
        self.texts: list[str] = []
        self._open: list[str] = []
        self._href = ""
        self.feed(text)
        assert not self._open, f"these have no end: {self._open}"

    def handle_starttag(self, tag, attributes):
        assert tag in self.KNOWN, f"an element that the console does not make: {tag}"
        found = dict(attributes)
        assert not [name for name in found if name.startswith("on") or name == "style"], found
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "form":
            self.forms.append(Form(found))
        elif tag == "input" and self.forms:
            self.forms[-1].fields[found["name"]] = found.get("value", "")
        elif tag == "a":
            self._href = found["href"]

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self._open.pop() == tag, f"{tag} ends something else"

    def handle_data(self, data):
        self.texts.append(data)
        if self._open and self._open[-1] == "button" and self.forms:
            self.forms[-1].label += data
        if "a" in self._open and data.strip():
            self.links[data.strip()] = self._href

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


class Visitor:
    """`page`: the last document."""

    def __init__(self, console: Console, **options):
        self.console = console
        self.client = httpx2.Client(base_url=console.url, follow_redirects=True, timeout=60, **options)

    def __enter__(self) -> "Visitor":
        return self

    def __exit__(self, *_) -> None:
        self.client.close()

    def enter(self) -> "Visitor":
        self.open(self.console.link)
        return self

    def _read(self, answer: httpx2.Response) -> httpx2.Response:
        self.answer = answer
        if answer.headers["content-type"].startswith("text/html"):
            self.page = Document(answer.text)
        return answer

    def open(self, path: str, **headers: str) -> httpx2.Response:
        return self._read(self.client.get(path, headers=headers))

    def post(self, path: str, fields: dict[str, str], **headers: str) -> httpx2.Response:
        return self._read(self.client.post(path, data=fields, headers={"Origin": self.console.url, "Sec-Fetch-Site": "same-origin"} | headers))

    def form(self, label: str) -> Form:
        found = [form for form in self.page.forms if form.label.strip() == label]
        assert found, f"no button {label} among {[form.label for form in self.page.forms]}"
        return found[0]

    def has(self, label: str) -> bool:
        return any(form.label.strip() == label for form in self.page.forms)

    def press(self, label: str, **fields: str) -> httpx2.Response:
        form = self.form(label)
        return self.post(form.action, form.fields | fields)

    def follow(self, text: str) -> httpx2.Response:
        return self.open(self.page.links[text])

    def log_in(self, role: str, password: str) -> httpx2.Response:
        return self.post("/login", {"role": role, "password": password})

    @property
    def text(self) -> str:
        return self.page.text
