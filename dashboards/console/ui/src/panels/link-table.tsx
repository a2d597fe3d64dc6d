import { Link } from "wouter";
import type { Link as SiteLink } from "../api/types";
import { Shape } from "../components/shape";
import { colourName } from "../lib/colour";
import { DASH, formatScore } from "../lib/format";
import { COLUMNS, linkPath } from "../lib/links";
import { siteKey } from "../lib/site";

interface Props {
  links: readonly SiteLink[];
  /** What they are sorted by, as the API takes it; "": the worst first. */
  sort: string;
  onSort: (sort: string) => void;
  tenants: boolean;
}

/** The links, a row each; a heading sorts by it, the worst first. */
export function LinkTable({ links, sort, onSort, tenants }: Props) {
  return (
    <div className="card table-wrap" role="region" aria-label="Table of links" tabIndex={0}>
      <table className="stacks link-table">
        <caption className="visually-hidden">Links between sites and regionals</caption>
        <thead>
          <tr>
            <th scope="col">Site</th>
            <th scope="col">Regional</th>
            <Head title="Connectivity" doc="The score of the dimension; the worst links first" active={sort === ""} onSort={() => onSort("")} down={false} />
            {COLUMNS.map((c) => (
              <Head key={c.sort} title={c.title} doc={c.doc} active={sort === c.sort} onSort={() => onSort(sort === c.sort ? "" : c.sort)} down />
            ))}
          </tr>
        </thead>
        <tbody>
          {links.map((l) => (
            <tr key={siteKey({ tenant: l.tenant, name: l.site })} data-link={l.site}>
              <th scope="row" className="vs-name">
                <Link href={linkPath({ tenant: l.tenant, name: l.site })}>{l.site}</Link>
                <small className="muted truncate" title={l.reason || l.region}>
                  {tenants && `${l.tenant} · `}
                  {l.reason || l.region}
                </small>
              </th>
              <td data-label="Regional">{l.regional || DASH}</td>
              <td className="num" data-label="Connectivity">
                <span className="row nowrap end">
                  <Shape colour={l.colour} size={11} />
                  <span className="visually-hidden">{colourName[l.colour]}</span>
                  {formatScore(l.connectivity)}
                </span>
              </td>
              {COLUMNS.map((c) => (
                <td key={c.sort} className="num nowrap" data-label={c.title}>
                  {c.text(l)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head({ title, doc, active, onSort, down }: { title: string; doc: string; active: boolean; onSort: () => void; down: boolean }) {
  return (
    <th scope="col" className="num" aria-sort={active ? (down ? "descending" : "ascending") : "none"}>
      <button type="button" className="sort" title={doc} onClick={onSort}>
        {title}
        <span aria-hidden>{active ? (down ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}
