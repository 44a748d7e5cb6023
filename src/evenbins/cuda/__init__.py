"""Bulk calls on a GPU: the same bytes as on the CPU.

    f ──to_device──▶ g ── add_many, add_new_many, contains_many ──▶ g ──to_host──▶ f

The kernels are the core's own headers, compiled for the GPU when they are first used (cpp/cuda). Needs CuPy
(`pip install 'evenbins[cuda]'`) and a GPU of NVIDIA; importing `evenbins` needs neither.
"""

from typing import TYPE_CHECKING

from evenbins._lazy import lazy_names

if TYPE_CHECKING:
    from evenbins.cuda.errors import DeviceError
    from evenbins.cuda.filters import DeviceFilter
    from evenbins.cuda.fingerprints import DeviceFingerprintFilter
    from evenbins.cuda.sketches import DeviceSketch
    from evenbins.cuda.strings import Strings
    from evenbins.cuda.transfer import build, to_device

__all__ = [
    "DeviceError",
    "DeviceFilter",
    "DeviceFingerprintFilter",
    "DeviceSketch",
    "Strings",
    "build",
    "to_device",
]

__getattr__ = lazy_names(
    globals(),
    {
        "errors": "DeviceError",
        "filters": "DeviceFilter",
        "fingerprints": "DeviceFingerprintFilter",
        "sketches": "DeviceSketch",
        "strings": "Strings",
        "transfer": "build to_device",
    },
)
