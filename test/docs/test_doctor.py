"""Every check of outbox.doctor(), every fault that it reports, and every advice of a kind of sink has a text in doctor_causes.toml, and each of
those texts is one that the code prints."""

import re

import doctor
from outbox_rig.paths import ROOT

PARTS = sorted((ROOT / "src/extension").glob("5*_doctor*.sql"))
LITERAL = re.compile(r"'((?:[^']|'')*)'")


def joined(code: str) -> str:
    """String literals that stand on several lines are one, as for the compiler."""
    return re.sub(r"""(['"])\s*\n\s*\1""", "", re.sub(r"--[^\n']*$", "", code, flags=re.MULTILINE))


CODE = {path.name: joined(path.read_text()) for path in PARTS}
ALL = "".join(CODE.values()) + "".join(joined(path.read_text()) for folder, pattern in (("src/extension", "58_story.sql"), ("src", "server/**/*.cpp"),
                                       ("sinks", "kafka/kafka_library.cpp")) for path in (ROOT / folder).glob(pattern))
GROUPS = doctor.groups()
CAUSES = [cause for group in GROUPS for cause in group.cause]
TEXTS = [text for cause in CAUSES for text in cause.says] + [text for group in GROUPS for text in group.complete]


FAULT = re.compile(r"(?:\b(?:IF|ELSIF) (?P<when>(?:(?!\bTHEN\b|;).)*)\bTHEN\s+)?\bstatus := (?!'ok'|advice)(?P<row>.*?)(?=\bhint :=|RETURN NEXT|\bEND IF;|\bELSIF )", re.DOTALL)


def untold(code: str, texts: list[str]) -> list[str]:
    """The details of faults of which no text of the page is a part. A state that the detail prints stands in the condition; a detail that is
    added to has its beginning before it; the faults of tables are in a function of their own."""
    found = []
    for fault in FAULT.finditer(code):
        detail = fault["row"].partition("detail :=")[2]
        literals = " ".join(LITERAL.findall((fault["when"] or "") + detail))
        if detail.lstrip().startswith("detail\n"):
            literals += "".join(LITERAL.findall(code[:fault.start()].rpartition('"check" :=')[2].partition(";")[2].partition("detail :=")[2].partition(";")[0]))
        if detail and "s.fault" not in detail and not any(text in literals for text in texts):
            found.append(literals)
    return found


def test_every_check_says_what_it_looks_at():
    checks = set(re.findall(r"""^\s+(?:IF NOT FOUND THEN\s+)?"check" := (?:format\()?'([^'%]*)""", "".join(CODE.values()), re.MULTILINE))
    named = {"sink NAME" if check == "sink " else "advice NAME CHECK" if check == "advice " else check for check in checks}
    listed = {check.strip() for checks in re.findall(r"'\{([a-z, ]*)\}'(?:::text\[\])?, (?:true|false)", CODE["55_doctor.sql"]) for check in checks.split(",")}
    told = {check for group in GROUPS for check in group.checks}
    assert len(named) > 15 and len(listed) > 15
    assert told == named | listed
    caused = {re.sub(r"^advice NAME \w+$", "advice NAME CHECK", cause.check) for cause in CAUSES}
    assert caused - told == set()


def test_every_fault_has_a_cause_and_a_cure():
    assert sum(len(FAULT.findall(code)) for code in CODE.values()) > 40
    assert {name: missing for name, code in CODE.items() if (missing := untold(code, [*TEXTS, "Not looked at", "could not look"]))} == {}
    assert untold("IF a THEN status := 'error'; detail := 'A new fault.'; hint := 'x';", TEXTS) == ["A new fault."]


def test_every_advice_of_a_kind_has_a_text():
    files = [path for folder in ("sinks", "src/delivery") for pattern in ("**/*.cpp", "**/*.h") for path in (ROOT / folder).glob(pattern)]
    given = {name for path in files if "dvise" in (text := path.read_text()) for name in re.findall(r"""\{+\s*"([a-z]+)",\s*\n?\s*(?:std::string\()?"[A-Z]""", text)}
    assert len(given) >= 9
    assert {cause.check.removeprefix("advice NAME ") for cause in CAUSES if cause.check.startswith("advice ")} == given


def test_every_text_is_one_that_the_code_has():
    assert len(TEXTS) > 50
    assert [text for text in TEXTS if text not in ALL] == []
