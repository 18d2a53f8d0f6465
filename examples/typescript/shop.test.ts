// A Kubernetes API server for tests. Only Node's own modules are needed.
import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

const dir = mkdtempSync(join(tmpdir(), "shop-"));
const server = spawn(
  process.env.TIDEMARK ?? "tidemark",
  ["serve", "--in-memory", "--port=0", "--ready-fd=1", "--exit-with-parent", "--control=" + join(dir, "control.sock")],
  { stdio: ["ignore", "pipe", "ignore"] },
);

// send sends a request and returns the JSON of the response.
function send(options = {}, body = "", secure = true) {
  return new Promise((resolve, reject) => {
    const request = (secure ? https : http).request(options, (response) => {
      let text = "";
      response.on("data", (part) => (text += part));
      response.on("end", () => {
        const value = text === "" ? undefined : JSON.parse(text);
        (response.statusCode ?? 500) < 300 ? resolve(value) : reject(new Error(value?.message));
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

let ready = JSON.parse("{}");
let prepared = JSON.parse("{}");

function control(method = "GET", path = "", body = {}) {
  const headers = { "Content-Type": "application/json" };
  return send({ socketPath: ready.control, method, path: "/control/v1/" + path, headers }, JSON.stringify(body), false);
}

function get(world = JSON.parse("{}"), path = "") {
  const url = new URL(world.url + path);
  const headers = { Authorization: "Bearer " + world.token };
  return send({ host: url.hostname, port: url.port, ca: world.ca, path: url.pathname + url.search, headers });
}

before(async () => {
  for await (const line of createInterface({ input: server.stdout })) {
    ready = JSON.parse(line);
    break;
  }
  prepared = await control("POST", "worlds");
  const content = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
  await control("POST", `worlds/${prepared.name}/apply`, { manifests: [{ name: "shop", content }] });
});

after(() => {
  server.kill();
  rmSync(dir, { recursive: true, force: true });
});

test("a test has a world of its own", async () => {
  const world = JSON.parse(JSON.stringify(await control("POST", "worlds", { parent: prepared.name })));
  const content = "{apiVersion: v1, kind: ConfigMap, metadata: {namespace: shop, name: mine}}";
  await control("POST", `worlds/${world.name}/apply`, { manifests: [{ name: "mine", content }] });
  const own = JSON.parse(JSON.stringify(await get(world, "/api/v1/namespaces/shop/configmaps/mine")));
  assert.equal(own.metadata.name, "mine");
  await assert.rejects(get(prepared, "/api/v1/namespaces/shop/configmaps/mine"), /not found/);
  await control("DELETE", "worlds/" + world.name);
});
