import type { Colour } from "../api/types";
import { colourName } from "../lib/colour";

/** The outline of each colour's shape in a box of 16 × 16: told apart without colours. */
export function ShapePath({ colour }: { colour: Colour }) {
  switch (colour) {
    case "green":
      return <circle cx="8" cy="8" r="5.6" fill="var(--green)" />;
    case "orange":
      return <path d="M8 1.9 14.7 13.7 1.3 13.7Z" fill="var(--orange)" stroke="var(--orange)" strokeWidth="1" strokeLinejoin="round" />;
    case "red":
      return <rect x="2" y="2" width="12" height="12" rx="1.2" fill="var(--red)" />;
    default:
      return <circle cx="8" cy="8" r="4.9" fill="var(--surface)" stroke="var(--grey)" strokeWidth="2.2" />;
  }
}

/** A colour as a shape. Without a label it is decoration beside words that say the same. */
export function Shape({ colour, size = 14, label }: { colour: Colour; size?: number; label?: boolean }) {
  return (
    <svg
      className="shape"
      width={size}
      height={size}
      viewBox="0 0 16 16"
      data-colour={colour}
      {...(label ? { role: "img", "aria-label": colourName[colour] } : { "aria-hidden": true })}
    >
      <ShapePath colour={colour} />
    </svg>
  );
}
