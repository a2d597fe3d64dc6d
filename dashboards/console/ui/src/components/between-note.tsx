import { Problem } from "../api/client";
import { hasBetween } from "../lib/between";
import type { Range } from "../lib/history";
import { formatDuration } from "../lib/time";

/** How far apart the points of a chart are, and what it shows, or can't show, of the time between them. */
export function BetweenNote({ range, known, error, tooMany }: { range: Range; known: boolean; error: unknown; tooMany?: boolean }) {
  const each = `A point each ${formatDuration(range.step)}`;
  if (!hasBetween(range)) return <>{each}.</>;
  if (tooMany) return <>{each}; what was between the points is shown for few lines alone.</>;
  if (error) {
    return (
      <>
        {each}. <b>What was between the points is not shown, so this may hide what was short</b>: {error instanceof Problem ? error.fieldFault("within") || error.detail || error.title : String(error)}.
      </>
    );
  }
  if (!known) return <>{each}.</>;
  return <>{each}; the columns go from the least to the largest value between them. Grey at the foot: no data for a part of it.</>;
}
