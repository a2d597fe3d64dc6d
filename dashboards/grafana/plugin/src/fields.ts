import choices from './choices.json';
import type { MusterQuery } from './types';

/** A field of the editor. */
export interface Field {
  name: keyof MusterQuery;
  label: string;
  help?: string;
  /** What can be chosen; none: anything. */
  options?: string[];
  /** The backend's list of values that are offered. */
  values?: string;
  kind?: 'number' | 'switch' | 'code';
}

const virtualSite: Field = { name: 'virtualSite', label: 'Virtual site', help: 'Only members: NAMESPACE/NAME', values: 'virtual-sites' };
const site: Field = { name: 'site', label: 'Site', values: 'sites' };
const region: Field = { name: 'region', label: 'Region', values: 'regions' };
const text: Field = { name: 'text', label: 'Text', help: 'Only what has this text' };
const limit: Field = { name: 'limit', label: 'Limit', help: '1 to 10000; 1000 by default', kind: 'number' };
const numeric: Field = { name: 'numeric', label: 'Numbers', help: 'Labels and numbers alone, as alert rules take them', kind: 'switch' };
const severity: Field = { name: 'severity', label: 'Severity', options: ['critical', 'warning', 'info'] };
const namespace: Field = { name: 'namespace', label: 'Namespace' };

const ofHealth: Record<string, Field[]> = {
  sites: [
    virtualSite,
    site,
    region,
    { name: 'colour', label: 'Colour', options: ['green', 'orange', 'red', 'grey'] },
    { name: 'phase', label: 'Phase', options: ['Pending', 'Approved', 'Online', 'Offline', 'Decommissioned'] },
    text,
    { name: 'sort', label: 'Sort', help: 'score: worst first', options: ['score', 'name'] },
    limit,
    numeric,
  ],
  virtualSites: [virtualSite, text, limit, numeric],
  reasons: [site],
  signals: [site],
  history: [
    virtualSite,
    { name: 'stat', label: 'Of the virtual site', help: 'Empty: each member', options: ['mean', 'p10', 'worst'] },
    site,
    region,
    { name: 'dimension', label: 'Dimension', help: 'Empty: the score itself', options: ['all', ...choices.dimension] },
    limit,
  ],
  live: [virtualSite, site],
};

/** The fields that a query of this kind has, after those that choose the kind. */
export function fieldsOf(q: MusterQuery): Field[] {
  switch (q.queryType) {
    case 'sites':
      return q.sites === 'details' ? [site] : [virtualSite, site, region, q.sites === 'conditions' ? text : { ...text, label: 'Which', help: 'In the query language of the inventory, such as kind=store score<60' }, limit];
    case 'alerts':
      return [virtualSite, site, severity, { name: 'state', label: 'State', options: ['active', 'suppressed', 'all'] }, text, limit, numeric];
    case 'logs':
      return [
        { name: 'query', label: 'Search', help: 'Words, "phrases", field:value, AND, OR, NOT and brackets', kind: 'code' },
        virtualSite,
        site,
        namespace,
        { ...severity, options: ['error', 'warning', 'info', 'debug'] },
        limit,
      ];
    case 'rollouts':
      return [namespace, { name: 'state', label: 'State', options: ['active', 'ended', 'all'] }, text, limit];
    case 'metrics':
      return [{ name: 'expr', label: 'PromQL', kind: 'code' }, limit];
    case 'annotations':
      return [
        virtualSite,
        site,
        ...(q.annotations === undefined || q.annotations === 'timeline'
          ? [{ name: 'kinds', label: 'Kinds', help: 'colour, alert, rollout, maintenance, …; empty: all' } as Field]
          : []),
        ...(q.annotations === 'alerts' ? [severity] : []),
        limit,
      ];
    default:
      return ofHealth[q.health ?? 'sites'] ?? [];
  }
}

/** The fields that choose the kind. */
export function kindsOf(q: MusterQuery): Field[] {
  const type = q.queryType ?? 'health';
  const out: Field[] = [{ name: 'queryType', label: 'Query', options: choices.queryType }];
  if (type === 'health' || type === 'sites' || type === 'annotations') {
    out.push({ name: type, label: 'Of', options: choices[type] });
  }
  return out;
}

/** Whether there is enough to ask. */
export function complete(q: MusterQuery): boolean {
  if (q.queryType === 'metrics') {
    return Boolean(q.expr?.trim());
  }
  const one = (q.queryType === 'health' && (q.health === 'reasons' || q.health === 'signals')) || (q.queryType === 'sites' && q.sites === 'details');
  return !one || Boolean(q.site);
}
