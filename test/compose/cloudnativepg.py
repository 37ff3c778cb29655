"""Checks the manifests of docs/high-availability.md against CloudNativePG's CRDs: cloudnativepg.py FOLDER, which holds config/crd/bases of its source."""

import re
import sys
from pathlib import Path

import jsonschema
import yaml
from outbox_rig.paths import ROOT


def strict(schema):
    """As the API server does with --validate=strict: an unknown field is an error."""
    if isinstance(schema, dict):
        if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema.setdefault("additionalProperties", False)
        for part in schema.values():
            strict(part)
    elif isinstance(schema, list):
        for part in schema:
            strict(part)
    return schema


def main() -> None:
    schemas = {}
    for file in Path(sys.argv[1]).glob("postgresql.cnpg.io_*.yaml"):
        crd = yaml.safe_load(file.read_text())
        schema = strict(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        schemas[crd["spec"]["names"]["kind"]] = schema
    page = (ROOT / "docs/high-availability.md").read_text().partition("## CloudNativePG\n")[2].partition("\n## ")[0]
    for text in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
        manifest = yaml.safe_load(text)
        jsonschema.validate(manifest, schemas[manifest["kind"]])
        print(f"ok: {manifest['kind']} {manifest['metadata']['name']}")


main()
