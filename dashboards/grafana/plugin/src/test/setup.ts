// What jsdom lacks and @grafana/ui asks for.
import { vi } from 'vitest';

class Observer {
  observe() {}
  unobserve() {}
  disconnect() {}
}
vi.stubGlobal('ResizeObserver', Observer);
vi.stubGlobal('IntersectionObserver', Observer);
window.matchMedia ??= ((query: string) => ({ matches: false, media: query, addEventListener() {}, removeEventListener() {}, addListener() {}, removeListener() {} })) as unknown as typeof window.matchMedia;
HTMLCanvasElement.prototype.getContext = (() => ({ measureText: (s: string) => ({ width: s.length * 8 }) })) as unknown as typeof HTMLCanvasElement.prototype.getContext;
// Lists show no more entries than there is room for, of which jsdom has none.
for (const side of ['clientHeight', 'clientWidth']) {
  Object.defineProperty(Element.prototype, side, { configurable: true, value: 400 });
}
