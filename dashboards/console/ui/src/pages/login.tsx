import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, Problem } from "../api/client";
import { keys } from "../api/keys";
import type { Login, Session } from "../api/types";
import { Brand, ThemeToggle } from "../components/shell";
import { auth } from "../session";

/** Shows the ways to log in that the server has. */
export function LoginPage({ message }: { message: string }) {
  const ways = useQuery({ queryKey: keys.login, queryFn: ({ signal }) => api<Login>("GET", "/api/v1/login", { signal }), staleTime: Infinity });
  const [wantsToken, setWantsToken] = useState(false);
  useEffect(() => {
    document.title = "Log in · Muster";
  }, []);
  const provider = ways.data?.oidc;
  return (
    <main className="login">
      <div className="card">
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
        {provider && (
          <>
            <a className="button primary" href={`/api/v1/session/oidc?return=${encodeURIComponent(location.pathname + location.search)}`}>
              Log in with {hostOf(provider.issuerURL)}
            </a>
            {!wantsToken && (
              <button type="button" className="button quiet" onClick={() => setWantsToken(true)}>
                Use a token instead
              </button>
            )}
          </>
        )}
        {/* Whoever can't be told the ways can still paste a token. */}
        {(wantsToken || (!provider && !ways.isPending)) && <TokenForm primary={!provider} />}
      </div>
    </main>
  );
}

function hostOf(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return "your identity provider";
  }
}

function TokenForm({ primary }: { primary: boolean }) {
  const client = useQueryClient();
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [busy, setBusy] = useState(false);
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
    <form
      noValidate
      onSubmit={(e) => {
        e.preventDefault();
        void submit();
      }}
    >
      <div className="field">
        <label htmlFor="token">Token</label>
        <input id="token" className="input mono" type="password" autoComplete="off" spellCheck={false} autoFocus value={token}
          aria-invalid={error !== ""} aria-describedby="token-hint token-error" onChange={(e) => setToken(e.target.value)} />
        <p id="token-error" className="fault" role="alert">
          {error}
        </p>
      </div>
      <button type="submit" className={primary ? "button primary" : "button"} disabled={busy}>
        {busy ? "Logging in…" : "Log in"}
      </button>
      <p id="token-hint" className="hint">
        Any token that the control plane accepts: the file <code>admin.token</code> in the data directory, or a service account's. It is sent
        once, and kept in a cookie that scripts can't read.
      </p>
    </form>
  );
}
