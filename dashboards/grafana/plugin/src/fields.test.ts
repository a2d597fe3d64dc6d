import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import choices from './choices.json';
import { complete, fieldsOf, kindsOf } from './fields';

const names = (fs: Array<{ name: string }>) => fs.map((f) => f.name);

describe('the fields of a query', () => {
  it('every kind that can be chosen has its own', () => {
    for (const health of choices.health) {
      expect(fieldsOf({ refId: 'A', queryType: 'health', health }).length, health).toBeGreaterThan(0);
    }
    for (const queryType of choices.queryType) {
      expect(fieldsOf({ refId: 'A', queryType }).length, queryType).toBeGreaterThan(0);
    }
  });
  it('are those that the kind knows', () => {
    expect(names(fieldsOf({ refId: 'A', queryType: 'health', health: 'reasons' }))).toEqual(['site']);
    expect(names(fieldsOf({ refId: 'A', queryType: 'logs' }))).toEqual(['query', 'virtualSite', 'site', 'namespace', 'severity', 'limit']);
    expect(names(fieldsOf({ refId: 'A', queryType: 'annotations' }))).toContain('kinds');
    expect(names(fieldsOf({ refId: 'A', queryType: 'annotations', annotations: 'rollouts' }))).not.toContain('kinds');
    expect(names(kindsOf({ refId: 'A', queryType: 'health' }))).toEqual(['queryType', 'health']);
    expect(names(kindsOf({ refId: 'A', queryType: 'logs' }))).toEqual(['queryType']);
  });
  it('a field is one that the backend reads', () => {
    const backend = readFileSync('pkg/source/query.go', 'utf8');
    const all = choices.queryType.flatMap((queryType) => choices.health.flatMap((health) => [...fieldsOf({ refId: 'A', queryType, health }), ...kindsOf({ refId: 'A', queryType })]));
    for (const f of all) {
      expect(backend, f.name).toContain(`json:"${f.name}"`);
    }
  });
});

describe('complete', () => {
  it('waits for what a kind can not do without', () => {
    expect(complete({ refId: 'A', queryType: 'metrics' })).toBe(false);
    expect(complete({ refId: 'A', queryType: 'metrics', expr: 'up' })).toBe(true);
    expect(complete({ refId: 'A', queryType: 'health', health: 'reasons' })).toBe(false);
    expect(complete({ refId: 'A', queryType: 'sites', sites: 'details', site: '$site' })).toBe(true);
    expect(complete({ refId: 'A', queryType: 'health' })).toBe(true);
  });
});

describe('plugin.json', () => {
  const p = JSON.parse(readFileSync('src/plugin.json', 'utf8'));
  it('says what Grafana and its validator ask for', () => {
    expect(p.id).toMatch(/^[0-9a-z]+-([0-9a-z]+-)?datasource$/);
    expect(p).toMatchObject({ type: 'datasource', backend: true, alerting: true, streaming: true, metrics: true, logs: true, annotations: true });
    expect(p.info.keywords.length).toBeGreaterThan(0);
    expect(p.info.version).toBe('%VERSION%');
    expect(p.info.updated).toBe('%TODAY%');
    expect(p.dependencies.grafanaDependency).toMatch(/^>=\d+\.\d+\.\d+$/);
    for (const logo of Object.values<string>(p.info.logos)) {
      expect(readFileSync(`src/${logo}`, 'utf8')).toContain('<svg');
    }
  });
});
