import { useRef, useState } from "react";
import { useApprove } from "../api/queries";
import type { Place, Registration } from "../api/types";
import { Dialog } from "../components/dialog";
import { ProblemNote } from "../components/states";
import { checkLabelName, checkLabelValue, parseDegrees, parsePair } from "../lib/labels";
import { Icon } from "../components/icon";
import { Facts } from "../panels/registration-facts";

interface Pair {
  id: number;
  name: string;
  value: string;
}

/** Lets a machine into the fleet, with labels and a place on the map. */
export function ApproveDialog({ site, onClose, onDone }: { site: Registration; onClose: () => void; onDone: () => void }) {
  const approve = useApprove();
  const nextId = useRef(1);
  const [pairs, setPairs] = useState<Pair[]>(() => (site.labels?.region === undefined ? [{ id: 0, name: "region", value: "" }] : []));
  const [latitude, setLatitude] = useState("");
  const [longitude, setLongitude] = useState("");
  const [address, setAddress] = useState("");
  const [tried, setTried] = useState(false);

  const used = pairs.filter((p) => p.name.trim() !== "" && !(p.name.trim() === "region" && p.value.trim() === ""));
  const faultOf = (p: Pair): string => {
    const [name, value] = [p.name.trim(), p.value.trim()];
    if (name === "" && value === "") return "";
    if (name === "region" && value === "") return "";
    const fault = checkLabelName(name) || checkLabelValue(value);
    if (fault) return fault;
    return used.some((o) => o.id !== p.id && o.name.trim() === name) ? "named twice" : "";
  };
  const placed = latitude.trim() !== "" || longitude.trim() !== "" || address.trim() !== "";
  const [lat, lon] = [parseDegrees(latitude, 90), parseDegrees(longitude, 180)];
  const latFault = placed && Number.isNaN(lat) ? "want −90 to 90" : "";
  const lonFault = placed && Number.isNaN(lon) ? "want −180 to 180" : "";
  const valid = pairs.every((p) => faultOf(p) === "") && !latFault && !lonFault;

  const submit = () => {
    setTried(true);
    if (!valid) return;
    const place: Place | null = placed ? { latitude: lat, longitude: lon, ...(address.trim() ? { address: address.trim() } : {}) } : null;
    approve.mutate({ site, labels: Object.fromEntries(used.map((p) => [p.name.trim(), p.value.trim()])), place }, { onSuccess: onDone });
  };
  const edit = (id: number, change: Partial<Pair>) => setPairs((all) => all.map((p) => (p.id === id ? { ...p, ...change } : p)));

  return (
    <Dialog title={`Approve ${site.name}`} onClose={onClose} onSubmit={submit} busy={approve.isPending}
      actions={
        <button type="submit" className="button primary" disabled={approve.isPending}>
          {approve.isPending ? "Approving…" : "Approve"}
        </button>
      }
    >
      <Facts of={site} />
      <fieldset>
        <legend>Labels to add</legend>
        <p className="hint">Virtual sites choose their members by labels; the region also names the site's own.</p>
        <div className="pairs">
          {pairs.map((p) => {
            const fault = tried ? faultOf(p) : "";
            return (
              <div key={p.id} className="pair">
                <input className="input mono" aria-label="Label name" placeholder="name" value={p.name} aria-invalid={fault !== ""} spellCheck={false} onChange={(e) => edit(p.id, { name: e.target.value })} />
                <input className="input mono" aria-label={`Value of ${p.name || "the label"}`} placeholder="value" value={p.value} aria-invalid={fault !== ""} spellCheck={false}
                  onChange={(e) => edit(p.id, { value: e.target.value })} />
                <button type="button" className="button quiet icon" aria-label={`Remove label ${p.name}`} onClick={() => setPairs((all) => all.filter((o) => o.id !== p.id))}>
                  <Icon d="M4 4l8 8M12 4l-8 8" />
                </button>
                {fault && (
                  <p className="fault" role="alert">
                    {fault}
                  </p>
                )}
              </div>
            );
          })}
          <div>
            <button type="button" className="button" onClick={() => setPairs((all) => [...all, { id: nextId.current++, name: "", value: "" }])}>
              Add a label
            </button>
          </div>
        </div>
      </fieldset>
      <fieldset>
        <legend>Place (optional)</legend>
        <div className="cols2">
          <Degrees id="latitude" label="Latitude" hint="degrees north, such as 48.8566" value={latitude} fault={tried ? latFault : ""}
            onChange={(v) => {
              const pair = parsePair(v); // pasted from a map
              setLatitude(pair ? pair.latitude : v);
              if (pair) setLongitude(pair.longitude);
            }} />
          <Degrees id="longitude" label="Longitude" hint="degrees east, such as 2.3522" value={longitude} fault={tried ? lonFault : ""} onChange={setLongitude} />
        </div>
        <div className="field">
          <label htmlFor="address">Address</label>
          <input id="address" className="input" maxLength={200} value={address} onChange={(e) => setAddress(e.target.value)} />
        </div>
      </fieldset>
      {approve.error && <ProblemNote error={approve.error} doing="approve the site" />}
    </Dialog>
  );
}

function Degrees({ id, label, hint, value, fault, onChange }: { id: string; label: string; hint: string; value: string; fault: string; onChange: (v: string) => void }) {
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <input id={id} className="input" inputMode="decimal" value={value} aria-invalid={fault !== ""} aria-describedby={`${id}-hint`} onChange={(e) => onChange(e.target.value)} />
      <p id={`${id}-hint`} className={fault ? "fault" : "hint"}>
        {fault || hint}
      </p>
    </div>
  );
}
