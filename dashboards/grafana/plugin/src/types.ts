import type { DataQuery } from '@grafana/schema';
import type { DataSourceJsonData } from '@grafana/data';

/** What the editor makes and the backend answers; pkg/source/query.go says what each field means. */
export interface MusterQuery extends DataQuery {
  queryType?: string;
  health?: string;
  sites?: string;
  annotations?: string;
  kinds?: string;
  virtualSite?: string;
  site?: string;
  region?: string;
  colour?: string;
  phase?: string;
  dimension?: string;
  stat?: string;
  text?: string;
  sort?: string;
  severity?: string;
  state?: string;
  namespace?: string;
  query?: string;
  expr?: string;
  limit?: number;
  numeric?: boolean;
}

export interface MusterOptions extends DataSourceJsonData {
  tenant?: string;
  oauthPassThru?: boolean;
}

export interface MusterSecrets {
  token?: string;
}

/** Where a variable's values come from. */
export interface VariableQuery extends DataQuery {
  values?: 'virtual-sites' | 'sites' | 'regions' | 'label-keys' | 'labels';
  virtualSite?: string;
  key?: string;
}
