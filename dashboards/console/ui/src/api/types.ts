// The JSON of the console's HTTP API, as far as the pages use it.
// The authority is /api/v1/openapi.json.

export type Colour = "green" | "orange" | "red" | "grey";
export type Phase = "Pending" | "Approved" | "Online" | "Offline" | "Decommissioned";
export type Dimension = "connectivity" | "reliability" | "security" | "performance";

/** An RFC 3339 time. */
export type Time = string;

export interface DimensionHealth {
  score: number | null;
  colour: Colour;
  /** At least half of the signals' weight is known. */
  known: boolean;
  /** Age of the score when it is an old one; 0 when it is current. */
  staleSeconds: number;
}

export interface Reason {
  dimension: Dimension;
  /** "" when a whole dimension is unknown. */
  signal: string;
  value: number | null;
  threshold: number | null;
  pointsLost: number;
  since: Time | null;
  text: string;
}

export interface Place {
  latitude: number;
  longitude: number;
  address?: string;
}

export interface Maintenance {
  reason: string;
  until?: Time | null;
}

export interface Site {
  name: string;
  tenant: string;
  region: string;
  virtualSites: string[];
  phase: Phase;
  lastSeen: Time | null;
  score: number | null;
  colour: Colour;
  since: Time | null;
  dimensions: Partial<Record<Dimension, DimensionHealth>>;
  reasons: Reason[];
  place: Place | null;
  maintenance: Maintenance | null;
}

export interface Signal {
  name: string;
  dimension: Dimension;
  value: number | null;
  /** 0 to 1. */
  score: number | null;
  known: boolean;
  error?: string | null;
  good: number;
  bad: number;
  weight: number;
  critical: boolean;
  unit?: string;
  source?: string;
  asOf?: Time | null;
}

export interface SiteDetail extends Site {
  labels?: Record<string, string>;
  /** Name of the HealthPolicy; "" for the shipped one. */
  policy?: string;
  /** The regional can't be asked, so the values come from Cortex. */
  fromStore?: boolean;
  signals: Signal[];
}

export interface SiteList {
  /** The evaluation tick; null before the first. */
  asOf: Time | null;
  total: number;
  sites: Site[];
  nextCursor?: string | null;
}

export interface Counts {
  green: number;
  orange: number;
  red: number;
  grey: number;
}

export interface VirtualSite {
  name: string;
  namespace: string;
  tenant: string;
  description?: string;
  sites: number;
  mean: number | null;
  p10: number | null;
  worst: { site: string; score: number | null } | null;
  counts: Counts;
  maintenance: number;
  percentUnhealthy: number | null;
}

export interface VirtualSiteList {
  asOf: Time | null;
  total: number;
  virtualSites: VirtualSite[];
  nextCursor?: string | null;
}

export interface Condition {
  type: string;
  status: "True" | "False" | "Unknown";
  reason?: string;
  message?: string;
  lastTransitionTime?: Time | null;
}

/** A site as the control plane knows it. */
export interface SiteObject {
  name: string;
  tenant: string;
  phase: Phase | "";
  labels?: Record<string, string> | null;
  systemLabels?: Record<string, string> | null;
  versions?: Record<string, string> | null;
  conditions?: Condition[] | null;
  place?: Place | null;
  maintenance?: Maintenance | null;
  maintenanceWindows?: MaintenanceWindow[] | null;
  regional?: string;
  lastSeen?: Time | null;
  createdAt?: Time | null;
  certificateNotAfter?: Time | null;
  policyHash?: string;
  token?: string;
  approved: boolean;
  decommissioned: boolean;
}

export interface Registration {
  name: string;
  tenant: string;
  labels?: Record<string, string> | null;
  systemLabels?: Record<string, string> | null;
  token?: string;
  createdAt?: Time | null;
  publicKey?: string;
}

export interface RegistrationList {
  registrations: Registration[];
  nextCursor?: string | null;
}

export interface Session {
  user: string;
  groups: string[];
  tenants: string[];
}

export interface PolicySignal {
  name: string;
  dimension: Dimension;
  error?: string | null;
  sitesKnown: number;
  queryMillis: number;
}

export interface HealthPolicy {
  /** "" for the shipped policy, which applies where no other does. */
  tenant: string;
  name: string;
  sites: number;
  /** What is wrong with the policy itself. */
  error?: string | null;
  signals: PolicySignal[];
}

export interface Matrix {
  status: "success" | "error";
  error?: string;
  data?: { resultType: string; result: { metric: Record<string, string>; values: [number, string][] }[] };
}

/** Planned work: once, at start, or again and again, by schedule. */
export interface MaintenanceWindow {
  name: string;
  reason: string;
  start: Time | null;
  /** cron's five fields; "" for a window that comes once. */
  schedule: string;
  /** Of the schedule; "" for UTC. */
  timeZone: string;
  /** As Go writes it: 2h0m0s. */
  duration: string;
}

export interface VirtualSiteMaintenance {
  tenant: string;
  namespace: string;
  name: string;
  maintenanceWindows: MaintenanceWindow[];
}

export interface LogRecord {
  timestamp: Time;
  tenant: string;
  site: string;
  region: string;
  node: string;
  namespace: string;
  pod: string;
  container: string;
  /** systemd unit, for lines from no pod. */
  unit: string;
  stream?: string;
  severity: string;
  message: string;
  labels?: Record<string, string>;
  /** With the timestamp, names the record for good. */
  id: string;
}

/** Bucket i counts the records from start + i * stepSeconds up to the next. */
export interface LogHistogram {
  start: Time;
  stepSeconds: number;
  counts: number[];
}

export interface MissingRegion {
  region: string;
  reason: string;
}

export interface LogPage {
  hits: LogRecord[];
  total: number;
  histogram: LogHistogram | null;
  missingRegions: MissingRegion[];
  nextCursor?: string | null;
}

export type AlertStateName = "active" | "suppressed" | "resolved";

export interface Alert {
  fingerprint: string;
  name: string;
  tenant: string;
  /** "" for an alert of no single site. */
  site: string;
  region: string;
  virtualSites: string[];
  /** critical, warning or info; what a rule says besides is passed on. */
  severity: string;
  state: AlertStateName;
  silencedBy: string[];
  inhibitedBy: string[];
  startsAt: Time;
  updatedAt: Time;
  endsAt: Time | null;
  labels: Record<string, string>;
  annotations: Record<string, string>;
  generatorURL: string;
}

export interface AlertSpan {
  startsAt: Time;
  /** null while it fires. */
  endsAt: Time | null;
}

export interface AlertDetail extends Alert {
  history: AlertSpan[];
}

export interface SeverityCounts {
  critical: number;
  warning: number;
  info: number;
}

export interface AlertList {
  asOf: Time;
  total: number;
  counts: SeverityCounts;
  alerts: Alert[];
  nextCursor?: string | null;
}

export interface AlertState {
  asOf: Time;
  firing: SeverityCounts;
  suppressed: number;
  /** Sites that have a firing alert. */
  sites: number;
}

export interface Matcher {
  name: string;
  value: string;
  isRegex: boolean;
  isEqual: boolean;
}

export type SilenceState = "active" | "pending" | "expired";

export interface Silence {
  id: string;
  tenant: string;
  matchers: Matcher[];
  startsAt: Time;
  endsAt: Time;
  createdBy: string;
  comment: string;
  state: SilenceState;
  /** Made by Muster for a maintenance window; it ends with that. */
  maintenance: boolean;
}

export interface SilenceRequest {
  matchers: Matcher[];
  duration: string;
  comment: string;
}
