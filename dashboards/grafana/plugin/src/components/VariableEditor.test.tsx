// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { DataSource } from '../datasource';
import type { VariableQuery } from '../types';
import { VariableEditor } from './VariableEditor';

afterEach(cleanup);

/** The editor as Grafana keeps it: what is changed comes back to it. */
function open(query: VariableQuery) {
  let now = query;
  const onChange = vi.fn((next: VariableQuery) => {
    now = next;
    rerender(editor());
  });
  const editor = () => <VariableEditor query={now} datasource={{} as DataSource} onChange={onChange} onRunQuery={vi.fn()} />;
  const { rerender } = render(editor());
  return { saved: () => now, onChange };
}

const fields = () => ['Values', 'Label', 'Virtual site'].filter((label) => screen.queryByLabelText(label));

describe('the editor of a variable', () => {
  it.each([
    [undefined, ['Values']],
    ['virtual-sites', ['Values']],
    ['sites', ['Values', 'Virtual site']],
    ['regions', ['Values', 'Virtual site']],
    ['label-keys', ['Values', 'Virtual site']],
    ['labels', ['Values', 'Label', 'Virtual site']],
  ] as Array<[VariableQuery['values'], string[]]>)('of %s has the fields that it takes', (values, want) => {
    const { onChange } = open({ refId: 'A', values });
    expect(fields()).toEqual(want);
    expect(onChange).not.toHaveBeenCalled();
  });
  it('offers what the backend has, and keeps the rest when another is chosen', async () => {
    const { saved } = open({ refId: 'A', key: 'store', virtualSite: '$virtual_site' });
    const values = screen.getByLabelText<HTMLInputElement>('Values');
    expect(values.value).toBe('Virtual sites');
    await userEvent.click(values);
    expect((await screen.findAllByRole('option')).map((o) => o.textContent)).toEqual(['Virtual sites', 'Sites', 'Regions', 'Names of labels', 'Values of a label']);
    await userEvent.click(screen.getByRole('option', { name: 'Values of a label' }));
    expect(saved()).toEqual({ refId: 'A', values: 'labels', key: 'store', virtualSite: '$virtual_site' });
    expect(screen.getByLabelText<HTMLInputElement>('Label').value).toBe('store');
  });
  it('keeps what is typed when its field is left', () => {
    const { saved, onChange } = open({ refId: 'A', values: 'labels' });
    for (const [label, value] of [
      ['Label', 'store'],
      ['Virtual site', '$virtual_site'],
    ]) {
      const field = screen.getByLabelText(label);
      fireEvent.change(field, { target: { value } });
      expect(onChange).not.toHaveBeenCalledWith(expect.objectContaining({ [label === 'Label' ? 'key' : 'virtualSite']: value }));
      fireEvent.blur(field);
    }
    expect(saved()).toEqual({ refId: 'A', values: 'labels', key: 'store', virtualSite: '$virtual_site' });
  });
});
