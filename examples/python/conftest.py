import pytest

import tidemark


@pytest.fixture(scope="session")
def server():
    s = tidemark.Server()
    yield s
    s.close()


@pytest.fixture(scope="session")
def prepared(server):
    """What each test begins with: definitions and fixtures."""
    world = server.fork()
    world.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
    return world


@pytest.fixture
def world(server, prepared):
    w = server.fork(prepared.info["name"])
    yield w
    w.close()
