interface Example {
  name: string;
  // What the API answers, which routes.mjs takes as it is.
  address: (get: (path: string) => Promise<any>) => string | Promise<string>;
}

export const EXAMPLES: Record<string, Example>;
