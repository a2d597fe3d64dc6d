import { spawn, spawnSync } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

const ui = dirname(dirname(fileURLToPath(import.meta.url)));
const dist = "node_modules/.cache/e2e-dist/"; // not dist/: a build of the binary may be reading that

/** Builds the page and starts the mock, unless BASE_URL names a console that runs. */
export default async function setup(): Promise<(() => void) | undefined> {
  if (process.env.BASE_URL) {
    process.env.E2E_MOCK = "";
    return undefined;
  }
  const built = spawnSync(process.execPath, ["node_modules/vite/bin/vite.js", "build", "--logLevel", "error", "--outDir", dist], { cwd: ui, stdio: "inherit" });
  if (built.status !== 0) throw new Error("vite build failed");
  const mock = spawn(process.execPath, ["mock/server.mjs", "0"], {
    cwd: ui,
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, DIST: dist, MOCK_STILL: "1", MOCK_TICK_MS: "1000", TOKEN: "mock" },
  });
  const line = await new Promise<string>((ok, fail) => {
    mock.stdout.once("data", (d: Buffer) => ok(d.toString()));
    mock.once("exit", (code) => fail(new Error(`the mock ended with ${code}`)));
  });
  process.env.BASE_URL = /http:\/\/[^/]+/.exec(line)?.[0] ?? "";
  process.env.TOKEN = "mock";
  process.env.E2E_MOCK = "1";
  return () => {
    mock.kill();
  };
}
