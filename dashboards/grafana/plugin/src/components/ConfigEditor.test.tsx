// @vitest-environment jsdom
import type { DataSourceSettings } from '@grafana/data';
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { MusterOptions, MusterSecrets } from '../types';
import { ConfigEditor } from './ConfigEditor';

afterEach(cleanup);

const settings = { id: 1, uid: 'muster', name: 'Muster', url: '', basicAuth: false, withCredentials: false, isDefault: false, access: 'proxy' };

/** The editor as Grafana keeps it: what is changed comes back to it. */
function open(jsonData: MusterOptions, secureJsonFields: Record<string, boolean> = {}) {
  let options = { ...settings, jsonData, secureJsonFields, secureJsonData: {} } as unknown as DataSourceSettings<MusterOptions, MusterSecrets>;
  const onOptionsChange = vi.fn((next: typeof options) => {
    options = next;
    rerender(<ConfigEditor options={options} onOptionsChange={onOptionsChange} />);
  });
  const { rerender } = render(<ConfigEditor options={options} onOptionsChange={onOptionsChange} />);
  return { saved: () => options, onOptionsChange };
}

/** Type what stands there afterwards, and leave the field. */
function type(label: string, value: string) {
  typeInto(screen.getByLabelText(label), value);
}

function typeInto(field: HTMLElement, value: string) {
  fireEvent.change(field, { target: { value } });
  fireEvent.blur(field);
}

describe('the settings of a data source', () => {
  it('keep the tenant, and the rest beside it', () => {
    const { saved } = open({ tlsAuth: true } as MusterOptions);
    type('Tenant', 'acme');
    expect(saved().jsonData).toEqual({ tlsAuth: true, tenant: 'acme' });
    type('Tenant', '');
    expect(saved().jsonData).toEqual({ tlsAuth: true, tenant: undefined });
  });
  it('show the tenant that is set, and change nothing by themselves', () => {
    const { onOptionsChange } = open({ tenant: 'acme' }, { token: true });
    expect(screen.getByLabelText<HTMLInputElement>('Tenant').value).toBe('acme');
    expect(onOptionsChange).not.toHaveBeenCalled();
  });
  it('keep the address of the console', () => {
    const { saved } = open({});
    typeInto(screen.getByPlaceholderText('https://muster.example.com'), 'https://fleet.example.com');
    expect(saved().url).toBe('https://fleet.example.com');
  });
  it('keep the token among the secrets alone', () => {
    const { saved } = open({ tenant: 'acme' });
    type('Token', 't0ken');
    expect(saved().secureJsonData).toEqual({ token: 't0ken' });
    expect(JSON.stringify({ ...saved(), secureJsonData: undefined })).not.toContain('t0ken');
  });
  it('do not show a token that is set, and take another after a reset', () => {
    const { saved } = open({}, { token: true, tlsClientKey: true });
    const token = screen.getByLabelText<HTMLInputElement>('Token');
    expect(token.disabled).toBe(true);
    fireEvent.click(screen.getByRole('button', { name: /reset/i }));
    expect(saved().secureJsonFields).toEqual({ token: false, tlsClientKey: true });
    expect(saved().secureJsonData).toEqual({ token: '' });
    type('Token', 'another');
    expect(saved().secureJsonData).toEqual({ token: 'another' });
  });
  it('have no token where the identity of who looks is forwarded, by the name that the backend reads', () => {
    const { saved } = open({ tenant: 'acme' });
    expect(screen.queryByLabelText('Token')).not.toBeNull();
    fireEvent.click(screen.getByLabelText(/forward oauth identity/i));
    expect(saved().jsonData).toEqual({ tenant: 'acme', oauthPassThru: true });
    expect(screen.queryByLabelText('Token')).toBeNull();
  });
});
