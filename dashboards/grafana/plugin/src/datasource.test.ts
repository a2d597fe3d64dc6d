import { SupplementaryQueryType, type DataQueryRequest, type DataSourceInstanceSettings } from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import type { MusterOptions, MusterQuery, VariableQuery } from './types';
import type { Variables } from './variables';

const getResource = vi.fn();
vi.mock('@grafana/runtime', () => ({
  DataSourceWithBackend: class {
    getResource = getResource;
  },
  getTemplateSrv: () => ({
    getVariables: () => [
      { name: 'site', current: { value: 'paris' } },
      { name: 'every', current: { value: ['$__all'] } },
    ],
    replace: (s: string, _scoped: unknown, format?: string) => s.replaceAll('$site', format === 'regex' ? '(paris|rome)' : 'paris'),
  }),
}));
vi.mock('./components/VariableEditor', () => ({ VariableEditor: () => null }));

const { DataSource } = await import('./datasource');
const source = new DataSource({} as DataSourceInstanceSettings<MusterOptions>);
const request = (targets: unknown[]) => ({ targets }) as unknown as DataQueryRequest<MusterQuery> & DataQueryRequest<VariableQuery>;

beforeEach(() => getResource.mockReset());

describe('variables in queries', () => {
  it('are filled in, as a pattern in PromQL', () => {
    const q: MusterQuery = { refId: '$site', queryType: 'health', site: '$site', expr: 'up{site=~"$site"}', limit: 5 };
    expect(source.applyTemplateVariables(q, {})).toEqual({ refId: '$site', queryType: 'health', site: 'paris', expr: 'up{site=~"(paris|rome)"}', limit: 5 });
  });
});

describe('all values of a variable', () => {
  it('are no filter', () => {
    const q: MusterQuery = { refId: 'A', queryType: 'logs', site: '${every}', namespace: '$every', severity: '[[every]]', query: 'a $every b', virtualSite: 'shared/$every' };
    expect(source.applyTemplateVariables(q, {})).toEqual({ ...q, site: '', namespace: '', severity: '' });
  });

  it('are one in a panel that is repeated for each', () => {
    const q: MusterQuery = { refId: 'A', queryType: 'alerts', site: '$every' };
    expect(source.applyTemplateVariables(q, { every: { text: 'rome', value: 'rome' } }).site).toBe('$every'); // as the templates replace it
  });
});

describe('what another kind of query left', () => {
  it('is not asked for', () => {
    const left = { refId: 'A', severity: 'error', state: 'ended' };
    expect(source.applyTemplateVariables({ ...left, queryType: 'alerts' }, {})).toMatchObject({ severity: '', state: '' });
    expect(source.applyTemplateVariables({ ...left, queryType: 'logs' }, {})).toMatchObject({ severity: 'error' });
    expect(source.applyTemplateVariables({ refId: 'A', queryType: 'alerts', severity: '$site' }, {})).toMatchObject({ severity: 'paris' });
  });
});

describe('values of variables', () => {
  it('come from the backend', async () => {
    getResource.mockResolvedValue(['a', 'b']);
    const got = await lastValueFrom((source.variables as Variables).query(request([{ refId: 'A', values: 'labels', key: 'store', virtualSite: 'shared/$site' }])));
    expect(getResource).toHaveBeenCalledWith('values/labels', { key: 'store', virtualSite: 'shared/paris' });
    expect(got.data).toEqual([
      { text: 'a', value: 'a' },
      { text: 'b', value: 'b' },
    ]);
  });
});

describe('lines over time in Explore', () => {
  it('is asked for of logs alone', () => {
    const logs = { refId: 'A', queryType: 'logs', query: 'error' };
    expect(source.getSupplementaryRequest(SupplementaryQueryType.LogsVolume, request([logs, { refId: 'B', queryType: 'alerts' }]))?.targets).toEqual([
      { ...logs, refId: 'log-volume-A', numeric: true, limit: 1 },
    ]);
    expect(source.getSupplementaryRequest(SupplementaryQueryType.LogsVolume, request([{ refId: 'B', queryType: 'alerts' }]))).toBeUndefined();
    expect(source.getSupplementaryRequest(SupplementaryQueryType.LogsSample, request([logs]))).toBeUndefined();
  });
});

describe('annotations', () => {
  it('ask the timeline unless they say what else', () => {
    expect(source.annotations.prepareQuery({})).toEqual({ annotations: 'timeline', refId: 'Anno', queryType: 'annotations' });
    expect(source.annotations.prepareQuery({ target: { refId: 'X', annotations: 'rollouts', site: 'paris' } })).toEqual({ annotations: 'rollouts', site: 'paris', refId: 'Anno', queryType: 'annotations' });
  });
});
