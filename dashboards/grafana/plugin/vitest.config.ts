import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    environment: 'jsdom',
    include: ['src/**/*.test.{ts,tsx}'],
    setupFiles: ['src/test/setup.ts'],
    // Grafana's packages import styles and JSON that only a bundler reads.
    server: { deps: { inline: [/@grafana\//] } },
    css: false,
    // What fails is broken, not slow.
    testTimeout: 60_000,
  },
});
