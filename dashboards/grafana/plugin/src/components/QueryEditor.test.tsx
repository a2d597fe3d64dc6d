// @vitest-environment jsdom
import { cleanup, fireEvent, render, screen, waitFor } from '@testing-library/react';
import { afterEach, describe, expect, it, vi } from 'vitest';
import type { DataSource } from '../datasource';
import type { MusterQuery } from '../types';
import { QueryEditor } from './QueryEditor';

afterEach(cleanup);

function open(query: MusterQuery) {
  const onChange = vi.fn();
  const onRunQuery = vi.fn();
  const values = vi.fn().mockResolvedValue(['shared/all-eu', 'shared/asia']);
  render(<QueryEditor query={query} datasource={{ values } as unknown as DataSource} onChange={onChange} onRunQuery={onRunQuery} />);
  return { onChange, onRunQuery, values };
}

describe('the editor of a query', () => {
  it('shows the fields of the kind and writes what is typed', () => {
    const { onChange, onRunQuery } = open({ refId: 'A', queryType: 'logs' });
    expect(screen.queryByLabelText('PromQL')).toBeNull();
    const search = screen.getByLabelText('Search');
    fireEvent.change(search, { target: { value: 'severity:error' } });
    fireEvent.blur(search);
    expect(onChange).toHaveBeenCalledWith({ refId: 'A', queryType: 'logs', query: 'severity:error' });
    expect(onRunQuery).toHaveBeenCalled();
  });
  it('takes a field out again when it is emptied', () => {
    const { onChange } = open({ refId: 'A', queryType: 'health', text: 'paris' });
    const text = screen.getByLabelText('Text');
    fireEvent.change(text, { target: { value: '' } });
    fireEvent.blur(text);
    expect(onChange).toHaveBeenCalledWith({ refId: 'A', queryType: 'health', text: undefined });
  });
  it('offers the virtual sites that the user may see', async () => {
    const { values } = open({ refId: 'A', queryType: 'health' });
    fireEvent.click(screen.getByLabelText('Virtual site'));
    await waitFor(() => expect(values).toHaveBeenCalledWith({ refId: 'values', values: 'virtual-sites' }));
  });
});
