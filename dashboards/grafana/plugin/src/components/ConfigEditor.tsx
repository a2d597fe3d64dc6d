import type { DataSourcePluginOptionsEditorProps } from '@grafana/data';
import { DataSourceHttpSettings, FieldSet, InlineField, Input, SecretInput } from '@grafana/ui';
import type { MusterOptions, MusterSecrets } from '../types';

type Props = DataSourcePluginOptionsEditorProps<MusterOptions, MusterSecrets>;

/** The settings: where the console is, which tenant, and as whom it is asked. */
export function ConfigEditor({ options, onOptionsChange }: Props) {
  const { jsonData, secureJsonFields, secureJsonData } = options;
  return (
    <>
      <DataSourceHttpSettings
        defaultUrl="https://muster.example.com"
        dataSourceConfig={options}
        onChange={onOptionsChange}
        showAccessOptions={false}
        showForwardOAuthIdentityOption
      />
      <FieldSet label="Muster">
        <InlineField label="Tenant" labelWidth={20} tooltip="Empty: all that the user may read; logs and metrics want one">
          <Input
            aria-label="Tenant"
            width={40}
            defaultValue={jsonData.tenant}
            onBlur={(e) => onOptionsChange({ ...options, jsonData: { ...jsonData, tenant: e.currentTarget.value || undefined } })}
          />
        </InlineField>
        {!jsonData.oauthPassThru && (
          <InlineField label="Token" labelWidth={20} tooltip="Of a user or service account that may read the tenant. Whoever uses this data source sees what it may read">
            <SecretInput
              aria-label="Token"
              width={40}
              isConfigured={Boolean(secureJsonFields?.token)}
              value={secureJsonData?.token ?? ''}
              onChange={(e) => onOptionsChange({ ...options, secureJsonData: { token: e.currentTarget.value } })}
              onReset={() => onOptionsChange({ ...options, secureJsonFields: { ...secureJsonFields, token: false }, secureJsonData: { token: '' } })}
            />
          </InlineField>
        )}
      </FieldSet>
    </>
  );
}
