"""The store ``redis``: one hash per subscription, written conditionally on the server."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import urlsplit

from dskype.bolts.results.base import Opening, Outcome, Removal, ResultStore, State, Stored, StoreUnavailable
from dskype.bolts.results.events import parse_registration
from dskype.topology.errors import IllegalArgumentException

__all__ = ["RedisStore"]

DEFAULT_URL = "redis://127.0.0.1:6379/0"
_SCHEMES = ("redis", "rediss", "unix")
_CHUNK = 200
"""States per script call. The server does nothing else while a script runs."""

# The order is that of supersedes() in base.py. Redis runs a script as one step.
_SCRIPT = """
local function number(text) return tonumber(text) end
local run, ttl = number(ARGV[1]), number(ARGV[2])
local result = {}
for i = 1, #KEYS do
  local at = 5 * (i - 1) + 2
  local partition, offset, watermark = number(ARGV[at + 1]), number(ARGV[at + 2]), number(ARGV[at + 3])
  local removed = ARGV[at + 4] == '1'
  local known = redis.pcall('HMGET', KEYS[i], 'run', 'registration', 'watermark')
  local wins = true
  if known.err then
    result[i] = known.err
  else
    if known[1] then
      local known_run, known_watermark = number(known[1]), number(known[3])
      local p, o = string.match(known[2], '^(%d+)-(%d+)$')
      local known_partition, known_offset = number(p), number(o)
      if run ~= known_run then wins = run > known_run
      elseif partition ~= known_partition then wins = watermark >= known_watermark
      elseif offset ~= known_offset then wins = offset > known_offset
      else
        local known_removed = redis.call('HEXISTS', KEYS[i], 'topk') == 0
        if removed ~= known_removed then wins = removed else wins = watermark >= known_watermark end
      end
    end
    if wins then
      local registration = ARGV[at + 1] .. '-' .. ARGV[at + 2]
      -- HSET comes first: a server short of memory refuses it, but only as the script's first write.
      if removed then
        redis.call('HSET', KEYS[i], 'run', ARGV[1], 'registration', registration, 'watermark', ARGV[at + 3])
        redis.call('HDEL', KEYS[i], 'topk')
        redis.call('PEXPIRE', KEYS[i], ttl)
      else
        redis.call('HSET', KEYS[i], 'run', ARGV[1], 'registration', registration, 'watermark', ARGV[at + 3], 'topk', ARGV[at + 5])
        redis.call('PERSIST', KEYS[i])
      end
    end
    result[i] = wins and 1 or 0
  end
end
return result
"""
_SHA = hashlib.sha1(_SCRIPT.encode(), usedforsecurity=False).hexdigest()


def _number(options: Mapping[str, Any], key: str, default: int, least: int) -> int:
    value = options.get(key, default)
    if type(value) is not int or value < least:
        raise IllegalArgumentException(f"Option {key} of store 'redis' is not usable.", given=value, legal=f"an integer, {least} or more")
    return value


class RedisStore(ResultStore):
    """Keeps each state in the hash ``<topology>:topk:<subscription>`` of a Redis server (6 or newer, not a cluster).

    Fields: ``topk`` (the JSON; absent once the subscription was removed), ``registration``, ``watermark``, ``run``. So
    ``HGET dskype:topk:s17 topk`` is the whole answer. The hash of a removed subscription expires. The server should persist
    its data, because a state is only written again when it changes.

    A batch takes a few script calls (``EVALSHA``) in one pipeline; each state is compared and written in one step.

    :param options: see ``OPTIONS``. The password may be in the URL. It is better to name an environment variable of the bolts'
        processes (``password.env``), because others can see the configuration of a topology. Passwords are never printed.
    """

    name = "redis"
    OPTIONS: ClassVar = {
        "url": f"redis://[user:password@]host:port/db, rediss:// for TLS (?ssl_ca_certs=...), unix://path; default {DEFAULT_URL}",
        "username": "in place of the one in the URL",
        "password": "in place of the one in the URL",
        "password.env": "name of the environment variable that holds the password",
        "timeout.ms": "time to connect, and to wait for an answer; attempts begin within this time; default 2000",
        "attempts": "attempts per call, with pauses between them; default 3",
        "removed.ttl.s": "how long the version of a removed subscription is remembered; default 604800 (a week)",
        "topic": "true: write states to the topic <topology>.topk, too; default false",
    }

    def __init__(self, options: Mapping[str, Any] | None = None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(options)
        options = self.options
        self._url = options.get("url", DEFAULT_URL)
        for key in ("username", "password", "password.env"):
            if not isinstance(options.get(key, ""), str):
                raise IllegalArgumentException(f"Option {key} of store 'redis' is not usable.", given=type(options[key]).__name__, legal="a string")
        if "password" in options and "password.env" in options:
            raise IllegalArgumentException("Store 'redis' takes one password.", given=["password", "password.env"], legal="one of them")
        self.topic = options.get("topic", False)
        if type(self.topic) is not bool:
            raise IllegalArgumentException("Option topic of store 'redis' is not usable.", given=self.topic, legal="true | false")
        self._timeout_s = _number(options, "timeout.ms", 2000, 1) / 1000
        self._attempts = _number(options, "attempts", 3, 1)
        self._ttl_ms = _number(options, "removed.ttl.s", 604_800, 1) * 1000
        self._address = self._shown_address()
        self._sleep = sleep
        self._client: Any = None

    def _shown_address(self) -> str:
        """Return the URL without secrets, for messages; refuse an unusable one."""
        try:
            parts = urlsplit(self._url)
            host, port = parts.hostname, parts.port
            if parts.scheme not in _SCHEMES or (parts.scheme == "unix" and not parts.path):
                raise ValueError
        except (ValueError, TypeError, AttributeError):
            # Not "from error", and without the value: it may hold the password.
            raise IllegalArgumentException(
                "Option url of store 'redis' is not usable.",
                given="<hidden, it may hold a password>",
                legal=self.OPTIONS["url"],
                hint="characters like / and @ in a password are written %2F and %40",
            ) from None
        return f"unix://{parts.path}" if parts.scheme == "unix" else f"{parts.scheme}://{host or '127.0.0.1'}:{port or 6379}{parts.path}"

    def __repr__(self) -> str:
        return f"RedisStore({self._address})"

    def open(self, opening: Opening) -> None:
        """Make a client, which connects at the first call.

        :raises IllegalArgumentException: the package is missing, or the environment lacks the password.
        """
        try:
            import redis
        except ImportError:
            raise IllegalArgumentException("Store 'redis' needs the package redis.", hint="pip install '/path/to/dskype[redis]'") from None
        arguments: dict[str, Any] = {"socket_timeout": self._timeout_s, "socket_connect_timeout": self._timeout_s, "decode_responses": False}
        if "username" in self.options:
            arguments["username"] = self.options["username"]
        variable = self.options.get("password.env")
        if variable is not None:
            if variable not in os.environ:
                raise IllegalArgumentException("The environment lacks the password of store 'redis'.", given=variable, legal="a variable that is set")
            arguments["password"] = os.environ[variable]
        elif "password" in self.options:
            arguments["password"] = self.options["password"]
        try:
            pool = redis.ConnectionPool.from_url(self._url, protocol=2, **arguments)
            pool.connection_kwargs.update(arguments)  # otherwise the URL would win over the arguments
            pool.make_connection()  # does not connect, but refuses unknown arguments
        except Exception as error:  # the text may hold parts of the URL
            raise IllegalArgumentException(
                "Option url of store 'redis' is not usable.", given=f"{self._address} ({type(error).__name__})", legal=self.OPTIONS["url"]
            ) from None
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self._client = redis.Redis(connection_pool=pool)
        self._client.set_retry(Retry(NoBackoff(), 0))  # attempts are counted here
        self._prefix = f"{opening.topology}:topk:"
        self._run = opening.run

    # -- writing --------------------------------------------------------------------------------------------------------

    def put(self, states: Sequence[State]) -> Outcome:
        """Write states; see :meth:`ResultStore.put`."""
        return self._write([(s.subscription, s.registration, s.watermark, b"0", s.value) for s in states])

    def remove(self, removals: Sequence[Removal]) -> Outcome:
        """Replace states by hashes without ``topk``."""
        return self._write([(r.subscription, r.registration, r.watermark, b"1", b"") for r in removals])

    def _write(self, rows: Sequence[tuple[str, str, int, bytes, bytes]]) -> Outcome:
        if not rows:
            return Outcome()
        calls = []
        for start in range(0, len(rows), _CHUNK):
            part = rows[start : start + _CHUNK]
            arguments: list[Any] = [self._run, self._ttl_ms]
            for _, registration, watermark, removed, value in part:
                arguments += (*parse_registration(registration), watermark, removed, value)
            calls.append((len(part), *(self._prefix + row[0] for row in part), *arguments))
        answers = [answer for chunk in self._attempt(lambda: self._run_script(calls)) for answer in chunk]
        failed = [(row[0], answer.decode(errors="replace")) for row, answer in zip(rows, answers, strict=True) if not isinstance(answer, int)]
        written = sum(answer == 1 for answer in answers)
        return Outcome(written, len(answers) - written - len(failed), failed)

    def _run_script(self, calls: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
        from redis.exceptions import NoScriptError

        with self._client.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.evalsha(_SHA, *call)
            answers = pipeline.execute(raise_on_error=False)
        if any(isinstance(a, NoScriptError) for a in answers):  # the server has restarted; writing twice is harmless
            self._client.script_load(_SCRIPT)
            with self._client.pipeline(transaction=False) as pipeline:
                for call in calls:
                    pipeline.evalsha(_SHA, *call)
                answers = pipeline.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def _attempt(self, function: Callable[[], Any]) -> Any:
        """Call a function, and call it again after a pause if the server or the network fails."""
        from redis.exceptions import RedisError

        stop_at = time.monotonic() + self._timeout_s
        for attempt in range(1, self._attempts + 1):
            try:
                return function()
            except (RedisError, OSError) as error:
                # A server that refuses answers at once, and may soon be back; a server that hangs has used up the time.
                if attempt == self._attempts or time.monotonic() >= stop_at:
                    raise StoreUnavailable(
                        f"Redis at {self._address} does not take states.",
                        given=self._reason(error),
                        hint="is the server up, and are address and password right?",
                    ) from None
            self._sleep(0.05 * 4 ** (attempt - 1))
        raise AssertionError("unreachable")

    def _reason(self, error: BaseException) -> str:
        """Return the text of an error without secrets."""
        text = f"{type(error).__name__}: {error}"
        secrets = [self._client.connection_pool.connection_kwargs.get("password"), urlsplit(self._url).password]
        for secret in filter(None, secrets):
            text = text.replace(str(secret), "***")
        return text

    # -- reading --------------------------------------------------------------------------------------------------------

    def get(self, subscription: str) -> Stored | None:
        """Read one hash."""
        value, registration, watermark, run = self._attempt(lambda: self._client.hmget(self._prefix + subscription, "topk", "registration", "watermark", "run"))
        return None if registration is None else Stored(registration.decode(), int(watermark), value, int(run))

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None
