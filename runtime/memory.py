"""What Heddle keeps in the memory of a device."""

from __future__ import annotations

from typing import NamedTuple

from heddle.runtime._core import Device, memory


class MemoryStatistics(NamedTuple):
    """Bytes of Heddle on one device, for the whole process; on a CPU in blocks of 4096 and more.

    Attributes:
        device: Where.
        live: In use, the sum of the kinds below.
        peak: The most that was in use at once, since the process began or the device was opened.
        reserved: Taken from the driver, in use or kept for later; on a CPU the same as `live`.
        weights: Weights and constants. What a CPU uses where it is, is not Heddle's.
        state: What the init of models has made, such as packed weights.
        arenas: What calls work in: one for each that runs at the same time, kept with the model.
        outputs: Buffers that calls have returned, and copies of buffers.
        buffers: What users have made, and inputs that came from the host.
    """

    device: Device
    live: int
    peak: int
    reserved: int
    weights: int
    state: int
    arenas: int
    outputs: int
    buffers: int


def memory_statistics(device: Device) -> MemoryStatistics:
    """The bytes of Heddle on `device` now.

    Memory of a GPU counts until it is dropped, though work that still runs may keep it longer.

    Raises:
        DeviceError: The device is not there, or is lost.
    """
    return MemoryStatistics(device, **memory(device))
