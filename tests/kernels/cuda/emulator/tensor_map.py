"""Tensor maps, as the driver's cuTensorMapEncodeTiled takes and refuses them.

The driver also takes rows that are narrower than the swizzle.
"""

from dataclasses import dataclass, field

from emulator.memory import EmulatorError

ALIGNMENT = 128  # Bytes, of a box in shared memory.


@dataclass
class TensorMap:
    """A kernel argument: how boxes of a buffer are copied; all sizes innermost first.

    Args:
        buffer: The `Buffer` that holds the tensor from its first byte on.
        item: Bytes of an element.
        shape: The tensor's shape, one to five sizes.
        strides: Bytes between neighbours along each axis but the innermost.
        box: The shape of what one instruction copies.
        swizzle: 0, 32, 64 or 128 bytes.
    """

    buffer: object
    item: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int = 0
    region: int = field(init=False, default=-1)

    def __post_init__(self) -> None:
        inner = self.box[0] * self.item
        for right, wanted in (
            (1 <= len(self.shape) <= 5, "one to five axes"),
            (len(self.box) == len(self.shape), "a box of as many axes"),
            (len(self.strides) == len(self.shape) - 1, "strides of all axes but the innermost"),
            (all(stride % 16 == 0 for stride in self.strides), "strides of whole 16 bytes"),
            (all(1 <= size <= 256 for size in self.box), "at most 256 elements of a box's axis"),
            (inner % 16 == 0, "rows of a box of whole 16 bytes"),
            (self.swizzle in (0, 32, 64, 128), "a swizzle of 0, 32, 64 or 128 bytes"),
            (self.swizzle in (0, inner), "rows of a box as wide as the swizzle"),
        ):
            if not right:
                raise EmulatorError(f"tensor map: wanted {wanted}, got {self}")

    @property
    def all_strides(self) -> tuple[int, ...]:
        return (self.item, *self.strides)

    @property
    def bytes(self) -> int:
        """Bytes of a box, as an mbarrier counts them: those out of bounds, too."""
        total = self.item
        for size in self.box:
            total *= size
        return total
