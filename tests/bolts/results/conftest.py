import pytest

from .redis_server import RedisServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """One server for the session; tests use topology names of their own."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server
