"""`heddle verify`: every byte of an artifact, and the weights that it was made for."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heddle.pipelines.cli.console import bytes_text, listed, print_json
from heddle.pipelines.cli.options import Location

if TYPE_CHECKING:
    from heddle.runtime import Artifact


@click.command(
    short_help="Verify an artifact, and its weights.",
    epilog=listed(
        "Examples:",
        "heddle verify minilm.heddle",
        "heddle verify minilm.heddle --weights model.safetensors",
    ),
)
@click.argument("artifact", type=Location())
@click.option(
    "--weights",
    type=Location(),
    help="Safetensors, the index of several, or GGUF: name, dtype, shape, sha256 of every weight.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(artifact: Path, weights: Path | None, as_json: bool) -> None:
    """Verify that ARTIFACT is whole: structure, references and every checksum.

    The runtime does the same at each load. Exit code 1 and one sentence when something is wrong.
    """
    from heddle.runtime import Artifact

    start = time.perf_counter()
    loaded = Artifact.load(artifact)
    seconds = time.perf_counter() - start
    checked = verify_weights(loaded, weights) if weights else 0
    if as_json:
        print_json(
            {
                "artifact": str(artifact),
                "bytes": loaded.nbytes,
                "seconds": seconds,
                "weights_checked": checked,
            }
        )
        return
    size = bytes_text(loaded.nbytes)
    click.secho(f"{artifact}: whole, {size} verified in {1e3 * seconds:.1f} ms", fg="green")
    if weights:
        click.secho(f"{weights}: all {checked} weights match", fg="green")


def verify_weights(artifact: Artifact, path: Path) -> int:
    """The number of weights of `artifact`, all of which match those in the file `path`.

    Raises:
        ArtifactError: A weight is missing or another one; the message names the first.
    """
    import numpy as np

    from heddle.pipelines.weights import dtype_of, of_artifact
    from heddle.runtime.errors import ArtifactError, ArtifactReason

    def fail(weight: dict[str, Any], wanted: str, got: str) -> ArtifactError:
        message = f"{path}: weight {weight['name']!r}: wanted {wanted}, got {got}"
        return ArtifactError(message, ArtifactReason.WEIGHTS)

    arrays = of_artifact(path, artifact)
    for weight in artifact.weights:
        array = arrays.get(weight["name"])
        wanted = f"{weight['dtype']} {list(weight['shape'])}"
        if array is None:
            raise fail(weight, wanted, "none of that name")
        found = f"{dtype_of(array)} {list(array.shape)}"
        if found != wanted:
            raise fail(weight, wanted, found)
        digest = hashlib.sha256(np.asarray(array).tobytes()).hexdigest()
        if not weight["sha256"]:
            raise fail(weight, "a sha256 in the artifact", "none: it was compiled without weights")
        if digest != weight["sha256"]:
            raise fail(weight, f"sha256 {weight['sha256']}", digest)
    return len(artifact.weights)
