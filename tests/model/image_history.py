"""Since when each image, its tags and its pin are there, as far as reclaimd can know."""

from __future__ import annotations

from dataclasses import dataclass, field

from eviction.drill.runtime.runtime import Image
from tests.model.ledger import Since

KNOWN = -1
"""The number of the call of a removal that reclaimd knows of."""


@dataclass(slots=True)
class ImageHistory:
    """What has happened to images. `pulled`: seconds. `dropped`: when one was removed last."""

    pulled: dict[str, float] = field(default_factory=dict)
    pinned: dict[str, Since] = field(default_factory=dict)
    tagged: dict[tuple[str, str], Since] = field(default_factory=dict)
    dropped: dict[str, Since] = field(default_factory=dict)

    def arrived(self, image_id: str, image: Image | None, now: Since, listed_images: int) -> None:
        """An image was pulled or tagged. One that was removed by others and pulled again before reclaimd's next
        complete listing of images (`listed_images`: the number of its call) was, for reclaimd, never away."""
        gone = self.dropped.pop(image_id, None)
        unseen = gone is not None and gone.call >= listed_images
        if image_id not in self.pulled or (gone is not None and not unseen):
            self.pulled[image_id] = now.seconds
        for tag in () if image is None else image.tags:
            self.tagged = {key: since for key, since in self.tagged.items() if key[1] != tag or key[0] == image_id}
            self.tagged.setdefault((image_id, tag), now)

    def left(self, image: Image, now: Since, *, known: bool) -> None:
        """An image was removed. `known`: reclaimd was told so."""
        self.dropped[image.id] = Since(KNOWN if known else now.call, now.seconds)
        for tag in image.tags:
            self.tagged.pop((image.id, tag), None)
        self.pinned.pop(image.id, None)
