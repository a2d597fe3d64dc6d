// A live tail of logs. It keeps no lines itself.

import { Link, type LinkOptions, type LinkState } from "./link";
import type { LogRecord, MissingRegion } from "./types";

export type TailState = LinkState;

export interface TailOptions extends Pick<LinkOptions, "url" | "onState" | "onOpen" | "read" | "random"> {
  /** Oldest first. */
  onHits: (hits: LogRecord[]) => void;
  onMissing: (regions: MissingRegion[]) => void;
}

/** The link to a tail; nothing is lost while it is held, the server knows where it was. */
export function logTail({ onHits, onMissing, ...o }: TailOptions): Link {
  return new Link({
    ...o,
    resumes: true,
    onEvent: (type, data) => {
      if (!data || typeof data !== "object") return;
      if (type === "hits") onHits((data as { hits?: LogRecord[] }).hits ?? []);
      else if (type === "missing") onMissing((data as { missingRegions?: MissingRegion[] }).missingRegions ?? []);
    },
  });
}
