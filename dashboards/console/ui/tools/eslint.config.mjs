// A short list: what typescript-eslint and React's own rules call an error. Run from the
// folder above, by `npm run lint`.
import js from "@eslint/js";
import hooks from "eslint-plugin-react-hooks";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["dist/", "tools/", "node_modules/", "src/api/openapi.ts"] },
  {
    files: ["src/**/*.{ts,tsx}", "e2e/**/*.ts"],
    extends: [js.configs.recommended, ...ts.configs.recommended],
    plugins: { "react-hooks": hooks },
    rules: {
      "react-hooks/rules-of-hooks": "error",
      "react-hooks/exhaustive-deps": "error",
    },
  },
);
