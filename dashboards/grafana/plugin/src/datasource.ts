import {
  type AdHocVariableFilter,
  type CoreApp,
  type DataQueryRequest,
  type DataQueryResponse,
  type DataSourceInstanceSettings,
  type MetricFindValue,
  type ScopedVars,
  type SupplementaryQueryOptions,
  SupplementaryQueryType,
} from '@grafana/data';
import { DataSourceWithBackend, getTemplateSrv } from '@grafana/runtime';
import { complete, fieldsOf } from './fields';
import type { MusterOptions, MusterQuery, VariableQuery } from './types';
import { Variables } from './variables';

/** Whether a field is nothing but a variable of which all values are chosen. */
function isAll(value: string, scoped: ScopedVars): boolean {
  const name = /^(?:\$(\w+)|\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\])$/.exec(value.trim())?.slice(1).find(Boolean);
  if (!name || scoped[name]) {
    return false;
  }
  const variable = getTemplateSrv().getVariables().find((v) => v.name === name) as { current?: { value?: unknown } } | undefined;
  return [variable?.current?.value].flat().includes('$__all');
}

/** The frontend of the data source. What it shows the backend answers. */
export class DataSource extends DataSourceWithBackend<MusterQuery, MusterOptions> {
  annotations = {
    prepareQuery: (a: { target?: MusterQuery }) => ({ annotations: 'timeline', ...a.target, refId: 'Anno', queryType: 'annotations' }),
  };

  constructor(settings: DataSourceInstanceSettings<MusterOptions>) {
    super(settings);
    this.variables = new Variables(this);
  }

  getDefaultQuery(_app: CoreApp): Partial<MusterQuery> {
    return { queryType: 'health', health: 'sites', sort: 'score' };
  }

  filterQuery(q: MusterQuery): boolean {
    return complete(q);
  }

  /**
   * Variables are filled in. All values are no filter; several come to the backend as {a,b}, which knows what takes
   * them. What a select of another kind of query left, such as a log's severity in alerts, is not asked for.
   */
  applyTemplateVariables(q: MusterQuery, scoped: ScopedVars, _filters?: AdHocVariableFilter[]): MusterQuery {
    const out: Record<string, unknown> = { ...q };
    const fields = fieldsOf(q);
    for (const [name, value] of Object.entries(q)) {
      if (typeof value !== 'string' || name === 'refId') {
        continue;
      }
      const options = fields.find((f) => f.name === name)?.options;
      if ((name !== 'expr' && isAll(value, scoped)) || (options && !options.includes(value) && !/\$|\[\[/.test(value))) {
        out[name] = '';
      } else {
        out[name] = getTemplateSrv().replace(value, scoped, name === 'expr' ? 'regex' : undefined);
      }
    }
    return out as unknown as MusterQuery;
  }

  /** The values of a variable, or of a field of the editor. */
  async values(q: VariableQuery, scoped?: ScopedVars): Promise<string[]> {
    const t = (s?: string) => getTemplateSrv().replace(s ?? '', scoped);
    const params: Record<string, string> = {};
    if (q.virtualSite) {
      params.virtualSite = t(q.virtualSite);
    }
    if (q.key) {
      params.key = t(q.key);
    }
    return this.getResource(`values/${q.values ?? 'sites'}`, params);
  }

  async metricFindQuery(q: VariableQuery, options?: { scopedVars?: ScopedVars }): Promise<MetricFindValue[]> {
    return (await this.values(q, options?.scopedVars)).map((text) => ({ text, value: text }));
  }

  // Explore shows how many lines there were over time above the lines.
  getSupportedSupplementaryQueryTypes(): SupplementaryQueryType[] {
    return [SupplementaryQueryType.LogsVolume];
  }

  getSupplementaryQuery(options: SupplementaryQueryOptions, q: MusterQuery): MusterQuery | undefined {
    if (options.type !== SupplementaryQueryType.LogsVolume || q.queryType !== 'logs' || q.hide) {
      return undefined;
    }
    return { ...q, refId: `log-volume-${q.refId}`, numeric: true, limit: 1 };
  }

  getSupplementaryRequest(type: SupplementaryQueryType, request: DataQueryRequest<MusterQuery>): DataQueryRequest<MusterQuery> | undefined {
    const targets = request.targets.flatMap((q) => this.getSupplementaryQuery({ type } as SupplementaryQueryOptions, q) ?? []);
    return targets.length > 0 ? { ...request, targets } : undefined;
  }
}

export type { DataQueryResponse };
