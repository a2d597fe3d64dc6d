import type { QueryEditorProps } from '@grafana/data';
import { Combobox, type ComboboxOption, InlineField, InlineFieldRow, InlineSwitch, Input } from '@grafana/ui';
import { useCallback } from 'react';
import type { DataSource } from '../datasource';
import { type Field, fieldsOf, kindsOf } from '../fields';
import type { MusterOptions, MusterQuery, VariableQuery } from '../types';

type Props = QueryEditorProps<DataSource, MusterQuery, MusterOptions>;

/** The editor of a query: its kind, and the fields that this kind has. */
export function QueryEditor({ query, datasource, onChange, onRunQuery }: Props) {
  const q: MusterQuery = { ...query, queryType: query.queryType ?? 'health' };
  const set = (name: keyof MusterQuery, value: string | number | boolean | undefined) => {
    onChange({ ...q, [name]: value === '' ? undefined : value });
    onRunQuery();
  };
  return (
    <>
      {[kindsOf(q), fieldsOf(q)].map((fields, row) => (
        <InlineFieldRow key={row}>
          {fields.map((f) => (
            <InlineField key={f.name} label={f.label} tooltip={f.help} labelWidth={14} grow={f.kind === 'code'}>
              <Control field={f} query={q} datasource={datasource} onSet={(v) => set(f.name, v)} />
            </InlineField>
          ))}
        </InlineFieldRow>
      ))}
    </>
  );
}

interface ControlProps {
  field: Field;
  query: MusterQuery;
  datasource: DataSource;
  onSet: (value: string | number | boolean | undefined) => void;
  id?: string;
}

function Control({ field, query, datasource, onSet, id }: ControlProps) {
  const value = query[field.name];
  const kind = field.name === 'queryType' || field.name === 'health' || field.name === 'sites' || field.name === 'annotations';
  const offered = useCallback(
    async (typed: string): Promise<Array<ComboboxOption<string>>> => {
      const all = await datasource.values({ refId: 'values', values: field.values as VariableQuery['values'] });
      return all
        .filter((v) => v.includes(typed))
        .slice(0, 200)
        .map((v) => ({ value: v, label: v }));
    },
    [datasource, field.values],
  );
  if (field.kind === 'switch') {
    return <InlineSwitch id={id} aria-label={field.label} value={Boolean(value)} onChange={(e) => onSet(e.currentTarget.checked || undefined)} />;
  }
  if (field.kind === 'number') {
    return (
      <Input
        id={id}
        aria-label={field.label}
        type="number"
        width={12}
        min={1}
        max={10000}
        placeholder="1000"
        defaultValue={value as number | undefined}
        onBlur={(e) => onSet(e.currentTarget.value === '' ? undefined : Number(e.currentTarget.value))}
      />
    );
  }
  if (field.options || field.values) {
    return (
      <Combobox<string>
        id={id}
        aria-label={field.label}
        width={24}
        options={field.options ? field.options.map((v) => ({ value: v, label: v })) : offered}
        value={(value as string | undefined) ?? (kind ? field.options?.[0] : null) ?? null}
        placeholder="any"
        createCustomValue={!kind}
        isClearable={!kind}
        onChange={(o: ComboboxOption<string> | null) => onSet(o?.value)}
      />
    );
  }
  return (
    <Input
      id={id}
      aria-label={field.label}
      width={field.kind === 'code' ? undefined : 24}
      defaultValue={value as string | undefined}
      onBlur={(e) => onSet(e.currentTarget.value)}
      onKeyDown={(e) => e.key === 'Enter' && onSet(e.currentTarget.value)}
    />
  );
}
