import { DataSourcePlugin } from '@grafana/data';
import { ConfigEditor } from './components/ConfigEditor';
import { QueryEditor } from './components/QueryEditor';
import { DataSource } from './datasource';
import type { MusterOptions, MusterQuery, MusterSecrets } from './types';

export const plugin = new DataSourcePlugin<DataSource, MusterQuery, MusterOptions, MusterSecrets>(DataSource)
  .setConfigEditor(ConfigEditor)
  .setQueryEditor(QueryEditor);
