import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, Problem } from "../api/client";
import { keys } from "../api/keys";
import type { Session } from "../api/types";
import { Brand, ThemeToggle } from "../components/shell";
import { auth } from "../session";

export function LoginPage({ message }: { message: string }) {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    document.title = "Log in · Muster";
  }, []);
  const submit = async () => {
    const t = token.trim();
    if (!t) return setError("Paste a token first.");
    setBusy(true);
    setError("");
    try {
      await api<void>("POST", "/api/v1/session", { body: { token: t } });
      client.setQueryData(keys.session, await api<Session>("GET", "/api/v1/session"));
      auth.set({ state: "in" });
    } catch (e) {
      setError(e instanceof Problem ? e.detail || e.title : String(e));
      setBusy(false);
    }
  };
  return (
    <main className="login">
      <form
        className="card"
        noValidate
        onSubmit={(e) => {
          e.preventDefault();
          void submit();
        }}
      >
        <div className="row spread">
          <h1 className="brand">
            <Brand />
          </h1>
          <ThemeToggle />
        </div>
        {message && (
          <div className="note slim" role="status">
            {message}
          </div>
        )}
        <div className="field">
          <label htmlFor="token">Token</label>
          <input id="token" className="input mono" type="password" autoComplete="off" spellCheck={false} autoFocus value={token}
            aria-invalid={error !== ""} aria-describedby="token-hint token-error" onChange={(e) => setToken(e.target.value)} />
          <p id="token-error" className="fault" role="alert">
            {error}
          </p>
        </div>
        <button type="submit" className="button primary" disabled={busy}>
          {busy ? "Logging in…" : "Log in"}
        </button>
        <p id="token-hint" className="hint">
          Any token that the control plane accepts: the file <code>admin.token</code> in the data directory, a service account's, or your
          identity provider's. It is sent once, and kept in a cookie that scripts can't read.
        </p>
      </form>
    </main>
  );
}
