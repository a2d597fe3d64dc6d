import { CustomVariableSupport, type DataQueryRequest, type DataQueryResponse } from '@grafana/data';
import { from, map, type Observable } from 'rxjs';
import { VariableEditor } from './components/VariableEditor';
import type { DataSource } from './datasource';
import type { VariableQuery } from './types';

/** Variables: virtual sites, sites, regions, labels. */
export class Variables extends CustomVariableSupport<DataSource, VariableQuery> {
  editor = VariableEditor;

  constructor(private readonly source: DataSource) {
    super();
  }

  query(request: DataQueryRequest<VariableQuery>): Observable<DataQueryResponse> {
    return from(this.source.metricFindQuery(request.targets[0], request)).pipe(map((data) => ({ data })));
  }

  getDefaultQuery(): Partial<VariableQuery> {
    return { values: 'virtual-sites' };
  }
}
