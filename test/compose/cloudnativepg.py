"""Checks docs/cloudnativepg.yaml against CloudNativePG's CRDs: cloudnativepg.py FOLDER, which holds config/crd/bases of its source."""

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
    for manifest in yaml.safe_load_all((ROOT / "docs/cloudnativepg.yaml").read_text()):
        jsonschema.validate(manifest, schemas[manifest["kind"]])
        print(f"ok: {manifest['kind']} {manifest['metadata']['name']}")


main()
