/** The token of a login link (/#token=…), or "". */
export function tokenOfHash(hash: string): string {
  const h = hash.startsWith("#") ? hash.slice(1) : hash;
  return (new URLSearchParams(h).get("token") ?? "").trim();
}
