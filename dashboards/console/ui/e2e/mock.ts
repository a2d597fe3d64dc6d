import { spawn } from "node:child_process";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";

export const ui = dirname(dirname(fileURLToPath(import.meta.url)));
export const dist = "node_modules/.cache/e2e-dist/"; // not dist/: a build of the binary may be reading that
export const token = "mock";

/** Starts a mock that serves the page as setup.ts built it, and says where it listens. */
export async function startMock(): Promise<{ url: string; stop: () => void }> {
  const mock = spawn(process.execPath, ["mock/server.mjs", "0"], {
    cwd: ui,
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, DIST: dist, MOCK_STILL: "1", MOCK_TICK_MS: "1000", TOKEN: token },
  });
  const line = await new Promise<string>((ok, fail) => {
    mock.stdout.once("data", (d: Buffer) => ok(d.toString()));
    mock.once("exit", (code) => fail(new Error(`the mock ended with ${code}`)));
  });
  return { url: /http:\/\/[^/]+/.exec(line)?.[0] ?? "", stop: () => void mock.kill() };
}
