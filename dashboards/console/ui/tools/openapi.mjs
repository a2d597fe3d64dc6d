// Writes src/api/openapi.ts from openapi.yaml: `npm run generate` in the folder above.
import { writeFileSync } from "node:fs";
import openapiTS, { astToString } from "openapi-typescript";

const ast = await openapiTS(new URL("../../openapi.yaml", import.meta.url));
const head = "// Generated from dashboards/console/openapi.yaml by `make generate`; don't edit.\n\n";
writeFileSync(new URL("../src/api/openapi.ts", import.meta.url), head + astToString(ast));
