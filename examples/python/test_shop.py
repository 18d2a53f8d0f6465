def test_own_world(world):
    world.apply("{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: mine}}")
    assert world.get("/api/v1/namespaces/shop/configmaps/mine")["metadata"]["name"] == "mine"


def test_another_world(world):
    names = [c["metadata"]["name"] for c in world.get("/api/v1/namespaces/shop/configmaps")["items"]]
    assert "mine" not in names


if __name__ == "__main__":  # without pytest
    import tidemark

    server = tidemark.Server()
    try:
        prepared = server.fork()
        prepared.apply("{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
        for test in (test_own_world, test_another_world):
            fork = server.fork(prepared.info["name"])
            test(fork)
            fork.close()
            print("ok", test.__name__)
    finally:
        server.close()
