"""Prints the software bill of materials of the environment that runs it: CycloneDX 1.6,
JSON, the same each time.

/opt/reclaimd/bin/python -I config/install/sbom.py          (an image has its output as
/opt/reclaimd/sbom.cdx.json)

A component is a Python distribution; its dependencies are those that are installed. What the base
image has besides is for its own bill.
"""

import json
import re
import sys
from importlib.metadata import Distribution, distributions
from typing import Any


def normalized(name: str) -> str:
    """Source: https://packaging.python.org/en/latest/specifications/name-normalization/"""
    return re.sub(r"[-_.]+", "-", name).lower()


def reference(distribution: Distribution) -> str:
    """Its package URL."""
    return f"pkg:pypi/{normalized(distribution.metadata['Name'])}@{distribution.version}"


def component(distribution: Distribution, kind: str = "library") -> dict[str, Any]:
    """A component, with its license where the metadata has it as an expression
    or as classifiers.
    """
    metadata = distribution.metadata
    names = [
        each.rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier", ())
        if each.startswith("License ::")
    ]
    licenses: list[dict[str, Any]] = [{"license": {"name": name}} for name in names]
    if "License-Expression" in metadata:
        licenses = [{"expression": metadata["License-Expression"]}]
    found = {
        "type": kind,
        "name": metadata["Name"],
        "version": distribution.version,
        "purl": reference(distribution),
    }
    return (
        found | {"bom-ref": reference(distribution)} | ({"licenses": licenses} if licenses else {})
    )


def bill(name: str) -> dict[str, Any]:
    """The bill of a distribution and everything beside it."""
    installed = {normalized(each.metadata["Name"]): each for each in distributions()}
    subject = installed.pop(name)
    needs = {
        reference(each): sorted(
            reference(installed[needed])
            for needed in {
                normalized(re.split(r"[^\w.-]", text)[0]) for text in each.requires or ()
            }
            if needed in installed
        )
        for each in (subject, *installed.values())
    }
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": component(subject, "application")},
        "components": [component(installed[each]) for each in sorted(installed)],
        "dependencies": [{"ref": each, "dependsOn": needs[each]} for each in sorted(needs)],
    }


if __name__ == "__main__":
    json.dump(bill("reclaimd"), sys.stdout, indent=2)
    sys.stdout.write("\n")
