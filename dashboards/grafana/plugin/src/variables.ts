import { CustomVariableSupport, type DataQueryRequest, type DataQueryResponse, type DataSourceApi, type MetricFindValue, type ScopedVars } from '@grafana/data';
import { from, map, type Observable } from 'rxjs';
import { VariableEditor } from './components/VariableEditor';
import type { MusterOptions, MusterQuery, VariableQuery } from './types';

/** Who knows the values of variables. */
interface Source {
  metricFindQuery(q: VariableQuery, options?: { scopedVars?: ScopedVars }): Promise<MetricFindValue[]>;
}

/** Variables: virtual sites, sites, regions, labels. */
export class Variables extends CustomVariableSupport<DataSourceApi<MusterQuery, MusterOptions>, VariableQuery> {
  editor = VariableEditor;

  constructor(private readonly source: Source) {
    super();
  }

  query(request: DataQueryRequest<VariableQuery>): Observable<DataQueryResponse> {
    return from(this.source.metricFindQuery(request.targets[0], request)).pipe(map((data) => ({ data })));
  }

  getDefaultQuery(): Partial<VariableQuery> {
    return { values: 'virtual-sites' };
  }
}
