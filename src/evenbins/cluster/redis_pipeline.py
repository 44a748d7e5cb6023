"""Keys as Redis stores them, and commands of several keys that are sent together.

Redis has one key for 5, "5" and b"5". The ring, which chooses a key's server, must see what Redis stores: an
int as its decimal text, bytearray and memoryview as bytes; str and bytes are one key to both.
"""

from __future__ import annotations

from typing import Any, Self

from evenbins.cluster._steps import Steps, awaitable, blocking
from evenbins.cluster.fleet import never_sent

__all__ = ["AsyncPipeline", "Pipeline", "RedisKey", "StoredKey", "stored_key"]

RedisKey = str | bytes | bytearray | memoryview | int
StoredKey = str | bytes


def stored_key(key: object) -> StoredKey:
    """Return a key as the server stores it, so that 5 and "5" lie on one server."""
    if isinstance(key, str | bytes):
        return key
    if isinstance(key, bytearray | memoryview):
        return bytes(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return str(int(key))
    raise TypeError(f"a key must be str, bytes or int, not {type(key).__name__}: pass str(key) or bytes")


class _Commands:
    """Commands with their keys, in order; the methods are those of redis-py that have one key."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._queued: list[tuple[str, StoredKey, tuple[Any, ...], dict[str, Any]]] = []

    def command(self, name: str, key: RedisKey, *arguments: Any, **options: Any) -> Self:
        """Queue any method of redis-py whose first argument is the key."""
        self._queued.append((name, stored_key(key), arguments, options))
        return self

    def get(self, key: RedisKey) -> Self:
        """Queue `get`."""
        return self.command("get", key)

    def set(self, key: RedisKey, value: Any, **options: Any) -> Self:
        """Queue `set`."""
        return self.command("set", key, value, **options)

    def delete(self, key: RedisKey) -> Self:
        """Queue `delete` of one key."""
        return self.command("delete", key)

    def exists(self, key: RedisKey) -> Self:
        """Queue `exists` of one key."""
        return self.command("exists", key)

    def expire(self, key: RedisKey, time: int) -> Self:
        """Queue `expire`."""
        return self.command("expire", key, time)

    def incr(self, key: RedisKey, amount: int = 1) -> Self:
        """Queue `incr`."""
        return self.command("incrby", key, amount)

    def __len__(self) -> int:
        return len(self._queued)

    def _by_key(self) -> dict[StoredKey, list[int]]:
        numbers: dict[StoredKey, list[int]] = {}
        for number, (_, key, _, _) in enumerate(self._queued):
            numbers.setdefault(key, []).append(number)
        return numbers

    def _execute(self, raise_on_error: bool = True) -> Steps[list[Any]]:
        """Send all commands and return the answers in their order; the pipeline is empty then.

        Parts of several servers are independent: one that fails does not keep the others from being done.

        Parameters
        ----------
        raise_on_error
            Raise the first error among the answers. If False, each error is the answer to its command.

        Raises
        ------
        ServerDownError
            A server died under its part, which may have been done or not; parts of other servers are done.
        """
        client, queued, numbers = self._client, self._queued, self._by_key()
        answers: list[Any] = [None] * len(queued)

        def send(node: str, keys: list[StoredKey]) -> Steps[None]:
            yield from client._connect(node)
            mine = sorted(number for key in keys for number in numbers[key])
            pipe = client._clients[node].pipeline(transaction=False)
            for number in mine:
                name, key, arguments, options = queued[number]
                getattr(pipe, name)(key, *arguments, **options)
            for number, answer in zip(mine, (yield pipe.execute(raise_on_error=False)), strict=True):
                answers[number] = client._note_server(node, answer)

        def failed(keys: list[StoredKey], error: Exception) -> None:
            for key in keys:
                for number in numbers[key]:
                    answers[number] = error

        try:
            yield client._fleet.call_many(
                list(numbers),
                lambda node, keys: client._run(send(node, keys)),
                again=never_sent,
                failed=failed,
            )
        finally:
            self._queued = []
        for answer in answers:
            if raise_on_error and isinstance(answer, Exception):
                raise answer
        return answers


class Pipeline(_Commands):
    """Commands of `ShardedRedis.pipeline`: one redis-py pipeline a server, no transaction over servers."""

    execute = blocking(_Commands._execute)


class AsyncPipeline(_Commands):
    """Commands of `AsyncShardedRedis.pipeline`."""

    execute = awaitable(_Commands._execute)
