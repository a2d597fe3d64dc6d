import { useState } from "react";
import { serverNow } from "../api/client";
import { goDuration, parseDuration, wordsOfDuration } from "../lib/duration";
import { formatAbsolute } from "../lib/time";

const PRESETS = ["1h", "4h", "1d"] as const;
const MAX_SECONDS = 366 * 86_400;

/** For how long, and why: what every silence is asked for. */
export function useTerms() {
  const [preset, setPreset] = useState<string>("1h");
  const [custom, setCustom] = useState("2h");
  const [comment, setComment] = useState("");
  const seconds = parseDuration(preset === "custom" ? custom : preset);
  const faults = {
    duration: seconds === undefined || seconds <= 0 ? "Want a duration such as 90m, 2h or 3d." : seconds > MAX_SECONDS ? "Want at most 366 days." : "",
    comment: comment.trim() === "" ? "Say why, for those who find the silence later." : "",
  };
  const agreed =
    faults.duration || faults.comment || seconds === undefined
      ? undefined
      : { request: { duration: goDuration(seconds), comment: comment.trim() }, words: `for ${wordsOfDuration(seconds)}, until ${formatAbsolute(serverNow() + seconds * 1000)}` };
  return { preset, setPreset, custom, setCustom, comment, setComment, seconds, faults, agreed };
}

/** said is what the server has found wrong with a field. */
export function SilenceTerms({ terms, tried, said }: { terms: ReturnType<typeof useTerms>; tried: boolean; said: (field: string) => string }) {
  return (
    <>
      <div className="field">
        <span className="label" id="silence-length">
          How long
        </span>
        <div className="row wrap">
          <div className="segmented" role="group" aria-labelledby="silence-length">
            {[...PRESETS, "custom"].map((p) => (
              <button key={p} type="button" aria-pressed={terms.preset === p} onClick={() => terms.setPreset(p)}>
                {p === "custom" ? "Custom" : wordsOfDuration(parseDuration(p)!)}
              </button>
            ))}
          </div>
          {terms.preset === "custom" && (
            <input className="input" style={{ width: 110 }} aria-label="Duration" value={terms.custom} spellCheck={false} aria-invalid={terms.faults.duration !== ""} aria-describedby="silence-duration" onChange={(e) => terms.setCustom(e.target.value)} />
          )}
        </div>
        <p id="silence-duration" className={terms.faults.duration ? "fault" : "hint"}>
          {terms.faults.duration || said("duration") || `Until ${formatAbsolute(serverNow() + (terms.seconds ?? 0) * 1000)}`}
        </p>
      </div>
      <div className="field">
        <label htmlFor="silence-comment">Comment</label>
        <input id="silence-comment" className="input" maxLength={1000} autoFocus value={terms.comment} aria-invalid={tried && terms.faults.comment !== ""} aria-describedby="silence-comment-fault" placeholder="Such as: disk is being changed, ticket 4711"
          onChange={(e) => terms.setComment(e.target.value)} />
        <p id="silence-comment-fault" className="fault" role="alert">
          {(tried && terms.faults.comment) || said("comment")}
        </p>
      </div>
    </>
  );
}
