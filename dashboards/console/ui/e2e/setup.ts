import { spawnSync } from "node:child_process";
import { dist, token, ui } from "./mock";

/** Builds the page for the mocks, of which each worker starts its own, unless BASE_URL names a console that runs. */
export default function setup(): void {
  process.env.E2E_MOCK = process.env.BASE_URL ? "" : "1";
  if (process.env.BASE_URL) return;
  process.env.TOKEN = token;
  const built = spawnSync(process.execPath, ["node_modules/vite/bin/vite.js", "build", "--logLevel", "error", "--outDir", dist], { cwd: ui, stdio: "inherit" });
  if (built.status !== 0) throw new Error("vite build failed");
}
