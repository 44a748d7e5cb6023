# What nanobind's stub generator cannot know about evenbins._core (syntax: nanobind's manual, "Pattern files").
# Raw slots and methods of the C API have no signature; an exception type made by hand names the module
# that users import it from, which imports it from the core.

evenbins\._core\.EvenbinsError$:
    class EvenbinsError(Exception): ...

evenbins\._core\.KeyRangeError$:
    class KeyRangeError(EvenbinsError, ValueError, TypeError): ...

evenbins\._core\.FormatError$:
    class FormatError(EvenbinsError, ValueError): ...

evenbins\._core\.(Filter|Shards|Stages)\.add$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def add(self, key: str | Buffer | SupportsIndex, /) -> None: ...

evenbins\._core\.(Filter|Shards|Stages)\.add_new$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def add_new(self, key: str | Buffer | SupportsIndex, /) -> bool: ...

evenbins\._core\.(Filter|Shards|Stages)\.__contains__$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def __contains__(self, key: str | Buffer | SupportsIndex, /) -> bool: ...

# The buffer protocol: a slot without a name before Python 3.12, so that it is written at the end always.
evenbins\._core\.Filter\.__buffer__$:

evenbins\._core\.Filter\.__suffix__$:
    def __buffer__(self, flags: int, /) -> memoryview: ...

evenbins\._core\.TableFullError$:
    class TableFullError(EvenbinsError, RuntimeError):
        inserted: int

evenbins\._core\.(Table|Chains|Pages)\.get$:
    \from typing import SupportsIndex, overload
    \from typing_extensions import Buffer
    @overload
    def get(self, key: str | Buffer | SupportsIndex, default: None = None, /) -> int | float | None: ...
    @overload
    def get(self, key: str | Buffer | SupportsIndex, default: int | float, /) -> int | float: ...

evenbins\._core\.Ring\.(node|get_node|assign|__getitem__)$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def \1(self, key: str | Buffer | SupportsIndex, /) -> str: ...

evenbins\._core\.Ring\.release$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def release(self, key: str | Buffer | SupportsIndex, /) -> bool: ...

evenbins\._core\.Ring\._locate$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def _locate(self, key: str | Buffer | SupportsIndex, /) -> str | None: ...

evenbins\._core\.Ring\.__contains__$:
    def __contains__(self, name: object, /) -> bool: ...

evenbins\._core\.(Table|Chains|Pages)\.__contains__$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def __contains__(self, key: str | Buffer | SupportsIndex, /) -> bool: ...

evenbins\._core\.(Table|Chains|Pages)\.__getitem__$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def __getitem__(self, key: str | Buffer | SupportsIndex, /) -> int | float: ...

evenbins\._core\.(Table|Chains|Pages)\.__setitem__$:
    \from typing import SupportsFloat, SupportsIndex
    \from typing_extensions import Buffer
    def __setitem__(self, key: str | Buffer | SupportsIndex, value: SupportsIndex | SupportsFloat, /) -> None: ...

evenbins\._core\.(Table|Chains|Pages)\.__delitem__$:
    \from typing import SupportsIndex
    \from typing_extensions import Buffer
    def __delitem__(self, key: str | Buffer | SupportsIndex, /) -> None: ...

evenbins\._core\.(Table|Chains|Pages|Ring)\.__len__$:
    def __len__(self) -> int: ...

time_insertions$:
    def time_insertions(capacity: int, seed: int, core: Sequence[int], keys: numpy.typing.NDArray[numpy.uint64], values: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint32]: ...

time_growing_insertions$:
    def time_growing_insertions(keys: numpy.typing.NDArray[numpy.uint64], values: numpy.typing.NDArray[numpy.uint64]) -> numpy.typing.NDArray[numpy.uint32]: ...

evenbins\._core\.FilterFullError$:
    class FilterFullError(EvenbinsError, RuntimeError):
        added: int
