import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { towns } from "./tools/towns.mjs";

// The development server passes /api on to the mock (npm run mock), or to a real
// console when API names one: API=http://127.0.0.1:8080 npm run dev.
const api = process.env.API ?? "http://127.0.0.1:8099";

export default defineConfig({
  plugins: [react(), towns()],
  worker: { format: "es" },
  build: {
    // Browsers that know light-dark(); the theme is built on it.
    target: ["chrome123", "edge123", "firefox120", "safari17.5"],
    assetsInlineLimit: 0, // nothing as a data: URL: the page's CSP stays strict
    modulePreload: { polyfill: false },
    rolldownOptions: {
      output: {
        // What most pages need comes in two files, not in dozens: over HTTP/1.1 a browser asks for six at a time.
        codeSplitting: {
          groups: [
            { name: "vendor", test: /node_modules[\\/](react|react-dom|scheduler|wouter|regexparam|use-sync-external-store|@tanstack[\\/](react-)?query(-core)?)[\\/]/ },
            { name: "shared", test: /[\\/]src[\\/](api|components|lib|session)/, minShareCount: 6 },
          ],
        },
      },
    },
  },
  server: { proxy: { "/api": api, "/mock": api } },
  test: { include: ["src/**/*.test.ts"], environment: "node" },
});
