"""`reclaimd manifests`: the objects of the DaemonSet for `kubectl apply -f -`, without a checkout.

They are rendered by kustomize when a version is made (`make manifests`). What they do not cover, an
overlay of your own does, on the tree that `--kustomize` writes.
"""

import re
import shutil
from argparse import ArgumentParser, Namespace

from eviction.cli.output import exit_on
from eviction.cli.streams import write_out
from eviction.exit_codes import EXIT_NOT_RELIEVED, EXIT_OK
from eviction.shipped import shipped

WITHOUT_CONFIGURATION = True
OPTIONS = {
    "--image IMAGE": "the image of the pods; default: reclaimd:VERSION",
    "--kustomize DIR": "write the kustomize tree there, which is a Helm chart, too; no more",
}


def add_arguments(parser: ArgumentParser) -> None:
    known = sorted(path.stem for path in shipped("manifests").iterdir())
    parser.add_argument(
        "variant",
        metavar="VARIANT",
        nargs="?",
        choices=known,
        default="base",
        help=f"one of {', '.join(known)}",
    )


def run(arguments: Namespace) -> int:
    """Exit 0; 1 the directory is there already, or cannot be written; 2 usage.

    Example: reclaimd manifests k3s --image registry.example/reclaimd:1
    """
    if arguments.kustomize is not None:
        with exit_on(
            EXIT_NOT_RELIEVED,
            OSError,
            "--kustomize must name a directory that does not exist yet: ",
        ):
            shutil.copytree(shipped("kubernetes"), arguments.kustomize)
        return EXIT_OK
    text = shipped(f"manifests/{arguments.variant}.yaml").read_text()
    if arguments.image is not None:
        text = re.sub(r"(?m)^( +image:) .*$", lambda line: f"{line[1]} {arguments.image}", text)
    write_out(text)
    return EXIT_OK
