import type { DataSourceApi, QueryEditorProps } from '@grafana/data';
import { Combobox, InlineField, InlineFieldRow, Input } from '@grafana/ui';
import type { MusterOptions, MusterQuery, VariableQuery } from '../types';

type Props = QueryEditorProps<DataSourceApi<MusterQuery, MusterOptions>, MusterQuery, MusterOptions, VariableQuery>;

const kinds: Array<{ value: NonNullable<VariableQuery['values']>; label: string }> = [
  { value: 'virtual-sites', label: 'Virtual sites' },
  { value: 'sites', label: 'Sites' },
  { value: 'regions', label: 'Regions' },
  { value: 'label-keys', label: 'Names of labels' },
  { value: 'labels', label: 'Values of a label' },
];

/** The editor of a variable. */
export function VariableEditor({ query, onChange }: Props) {
  const values = query.values ?? 'virtual-sites';
  return (
    <InlineFieldRow>
      <InlineField label="Values" labelWidth={14}>
        <Combobox aria-label="Values" width={24} options={kinds} value={values} onChange={(o) => onChange({ ...query, values: o.value })} />
      </InlineField>
      {values === 'labels' && (
        <InlineField label="Label" labelWidth={14}>
          <Input aria-label="Label" width={24} defaultValue={query.key} onBlur={(e) => onChange({ ...query, key: e.currentTarget.value })} />
        </InlineField>
      )}
      {values !== 'virtual-sites' && (
        <InlineField label="Virtual site" labelWidth={14} tooltip="Only its members; such as $virtual_site">
          <Input aria-label="Virtual site" width={24} defaultValue={query.virtualSite} onBlur={(e) => onChange({ ...query, virtualSite: e.currentTarget.value })} />
        </InlineField>
      )}
    </InlineFieldRow>
  );
}
