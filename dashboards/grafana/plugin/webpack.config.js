// Grafana loads module.js as AMD and brings its own React and packages of @grafana.
import CopyPlugin from 'copy-webpack-plugin';
import { readFileSync } from 'node:fs';
import webpack from 'webpack';

const { version } = JSON.parse(readFileSync('package.json', 'utf8'));
const today = (process.env.SOURCE_DATE ?? new Date().toISOString()).slice(0, 10);

export default {
  target: 'web',
  entry: { module: './src/module.ts' },
  output: { path: `${import.meta.dirname}/dist`, filename: '[name].js', library: { type: 'amd' }, publicPath: 'public/plugins/muster-fleet-datasource/', uniqueName: 'muster-fleet-datasource', clean: { keep: /gpx_/ } },
  externals: ['react', 'react-dom', 'rxjs', '@grafana/data', '@grafana/runtime', '@grafana/ui', '@grafana/schema'],
  resolve: { extensions: ['.ts', '.tsx', '.js'] },
  module: {
    rules: [
      {
        test: /\.tsx?$/,
        exclude: /node_modules/,
        loader: 'swc-loader',
        options: { jsc: { parser: { syntax: 'typescript', tsx: true }, target: 'es2022', transform: { react: { runtime: 'classic' } } } },
      },
    ],
  },
  devtool: 'source-map',
  plugins: [
    // Elements are made by the React of whichever Grafana it is: 12 has another than 13.
    new webpack.ProvidePlugin({ React: 'react' }),
    new CopyPlugin({
      patterns: [
        { from: 'src/plugin.json', to: 'plugin.json', transform: (b) => b.toString().replace('%VERSION%', version).replace('%TODAY%', today) },
        { from: 'src/img', to: 'img' },
        { from: 'README.md', to: 'README.md' },
        { from: 'CHANGELOG.md', to: 'CHANGELOG.md' },
      ],
    }),
  ],
};
