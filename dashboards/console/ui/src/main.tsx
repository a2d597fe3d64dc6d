import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { App, begin } from "./app";
import { routeOf } from "./pages";
import "./styles/tokens.css";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/fleet.css";
import "./styles/pages.css";
import "./styles/policies.css";
import "./styles/logs.css";
import "./styles/alerts.css";
import "./styles/workloads.css";
import "./styles/rollouts.css";
import "./styles/inventory.css";
import "./styles/load.css";
import "./styles/links.css";
import "./styles/timeline.css";
import "./styles/explore.css";

const root = document.getElementById("root");
if (root) {
  // Until both are there, index.html's bar is seen. A page that can't be loaded says so itself.
  await Promise.all([begin(), routeOf(location.pathname)?.load().catch(() => undefined)]);
  createRoot(root).render(
    <StrictMode>
      <App />
    </StrictMode>,
  );
}
