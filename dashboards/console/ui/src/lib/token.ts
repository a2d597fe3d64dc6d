/** The token of a login link (/#token=…), or "". */
export function tokenOfHash(hash: string): string {
  return (paramsOf(hash).get("token") ?? "").trim();
}

const REASONS: Record<string, string> = {
  expired: "That login took too long, or began in another browser. Try again.",
  denied: "The identity provider did not let you in.",
  failed: "The login with the identity provider failed. Try again; the console's log says why.",
  refused: "The identity provider knows you, but the control plane does not accept its token. An administrator can find out why.",
  unavailable: "The identity provider or the control plane can't be reached. Try again in a moment.",
};

/** Why a login with the identity provider came back without a session (/#login=…), or "". */
export function loginFault(hash: string): string {
  const reason = paramsOf(hash).get("login");
  return reason === null ? "" : (REASONS[reason] ?? REASONS.failed!);
}

function paramsOf(hash: string): URLSearchParams {
  return new URLSearchParams(hash.startsWith("#") ? hash.slice(1) : hash);
}
