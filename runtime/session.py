"""Where models are loaded: the devices of a session and its threads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from heddle.runtime import config
from heddle.runtime._core import CPU, Artifact, Device, Model, Session
from heddle.runtime.errors import DeviceError, InputError


class Compilable(Protocol):
    """What compiles itself when it is loaded, such as `heddle.graph.Graph`."""

    def __heddle_artifact__(self) -> Artifact:
        """The artifact, from the cache where this was compiled before."""


class InferenceSession:
    """Devices that models are loaded on. Sessions and their models may be used from many threads.

    Args:
        devices: In order of preference: a model goes to the first that its artifact has a program
            for. There is no fallback to a device that is not named here.
        threads: CPU threads, the caller's included; None: the setting `HEDDLE_THREADS`.
        pin: Binds each CPU thread to a core of its own.

    Raises:
        DeviceError: A device is not there.
        InputError: `devices` is no list, a device is no `Device`, or the number of threads is
            negative, no number, or more than 65536.
    """

    def __init__(
        self,
        devices: Sequence[Device] | None = None,
        threads: int | None = None,
        pin: bool = False,
    ) -> None:
        if not (devices is None or isinstance(devices, Iterable)):
            raise InputError(f"InferenceSession: wanted a list of devices, got {devices!r}")
        self.devices = tuple([CPU()] if devices is None else devices)
        if not self.devices:
            raise DeviceError("InferenceSession: wanted at least one device, got none")
        for device in self.devices:
            _check_device("InferenceSession: devices", device)
        if threads is None:
            threads = config.number("HEDDLE_THREADS", InputError)
        if not hasattr(threads, "__index__") or not 0 <= threads <= config.MOST_THREADS:
            raise InputError(
                f"InferenceSession: wanted threads from 0 to {config.MOST_THREADS}, got {threads!r}"
            )
        if not isinstance(pin, bool):
            raise InputError(f"InferenceSession: wanted pin as a bool, got {pin!r}")
        self._session = Session(list(self.devices), int(threads), pin)

    def load(
        self,
        source: Artifact | str | os.PathLike[str] | Compilable,
        weights: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        device: Device | None = None,
    ) -> Model:
        """Loads a model, binds its weights and runs its init.

        Args:
            source: An artifact, the path of one, or a graph, which is compiled (or found in the
                cache).
            weights: Arrays by name, or the path of a safetensors file, which is mapped, not read.
                On a CPU arrays above 64 KiB are used where they are: do not change them.
            device: One of `devices`, which the model is bound to; None: the first that the artifact
                has a program for.

        Raises:
            ArtifactError: The artifact or the weights file is missing or damaged, or weights are
                missing, too many, or of the wrong dtype or shape.
            DeviceError: The artifact has no program for these devices, or needs more than they are;
                `device` is none of them; or it has failed.
            InputError: `source` or `device` is of another type, or a weight is no array that can be
                used.
            CompileError: The graph could not be compiled.
        """
        if device is not None:
            _check_device("load: device", device)
        if isinstance(source, Artifact):
            artifact = source
        elif hasattr(source, "__heddle_artifact__"):
            artifact = source.__heddle_artifact__()
        elif isinstance(source, (str, os.PathLike)):
            artifact = Artifact.load(source)
        else:
            raise InputError(
                "load: wanted an Artifact, the path of one or a Graph, got "
                f"{type(source).__name__} {source!r}"
            )
        named = dict(weights) if isinstance(weights, Mapping) else weights
        if not (named is None or isinstance(named, (dict, str, bytes, os.PathLike))):
            raise InputError(
                "load: weights: wanted arrays by name, or the path of a safetensors file, got "
                f"{type(named).__name__} {named!r}"
            )
        return self._session.load(artifact, named, device)

    def __repr__(self) -> str:
        return f"InferenceSession({list(self.devices)})"


def _check_device(where: str, device: object) -> None:
    if not isinstance(device, Device):
        raise InputError(
            f"{where}: wanted a Device, as CPU() or Accelerator(0), got "
            f"{type(device).__name__} {device!r}"
        )
